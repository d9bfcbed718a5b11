//! Executed instructions that lock memory, counted from a callgrind file and the program's code.
//!
//! Callgrind states the address of each executed instruction in the file that contains it, so only
//! the first bytes of single instructions need decoding, and no other program is necessary.

use std::collections::HashMap;
use std::fs;

use anyhow::{Context, Result, ensure};

/// Bytes of the prefixes and the operation code of an instruction, at most.
const START: usize = 15;

/// The object files that counted code comes from, by path.
#[derive(Default)]
pub(crate) struct ObjectFiles(HashMap<String, Option<ObjectFile>>);

impl ObjectFiles {
    /// Returns the number of executed instructions that lock memory, according to a callgrind file
    /// with an address in each line of costs (`--dump-instr=yes`) and uncompressed addresses and
    /// names.
    pub(crate) fn locked(&mut self, counts: &str) -> Result<f64> {
        ensure!(counts.contains("\npositions: instr line\n"), "the file has no addresses");
        let mut total = 0.0;
        let mut object = None;
        // The line after a call repeats the costs that the lines of the callee state.
        let mut of_callee = false;
        for line in counts.lines() {
            if let Some(path) = line.strip_prefix("ob=") {
                object = self.open(path)?;
            } else if line.starts_with("calls=") {
                of_callee = true;
            } else if let Some(rest) = line.strip_prefix("0x")
                && !std::mem::take(&mut of_callee)
            {
                let mut fields = rest.split(' ');
                let address = u64::from_str_radix(fields.next().unwrap_or_default(), 16)?;
                // The address and the source line come before the number of instructions.
                let executed: f64 = fields.nth(1).map_or(Ok(0.0), str::parse)?;
                if let Some(object) = object
                    && locks_memory(object.bytes(address).with_context(|| line.to_owned())?)
                {
                    total += executed;
                }
            }
        }
        Ok(total)
    }

    /// Returns an object file; `None` for code that is in no file.
    fn open(&mut self, path: &str) -> Result<Option<&ObjectFile>> {
        if !self.0.contains_key(path) {
            let file = match path.starts_with('/') {
                true => Some(ObjectFile::read(path).with_context(|| path.to_owned())?),
                false => None,
            };
            self.0.insert(path.to_owned(), file);
        }
        Ok(self.0[path].as_ref())
    }
}

/// An ELF file for a 64-bit processor.
struct ObjectFile {
    content: Vec<u8>,
    /// The loaded parts: first address, place in the file, and bytes.
    parts: Vec<(u64, usize, usize)>,
}

impl ObjectFile {
    fn read(path: &str) -> Result<Self> {
        const LOADED: u64 = 1;
        let content = fs::read(path)?;
        ensure!(content.starts_with(b"\x7fELF\x02\x01"), "not an ELF file of 64 bits");
        let number = |place: usize, bytes: usize| {
            let mut number = [0; 8];
            let stored = content.get(place..place + bytes).context("the file is cut off")?;
            number[..bytes].copy_from_slice(stored);
            anyhow::Ok(u64::from_le_bytes(number))
        };
        let (first, size, count) = (number(32, 8)? as usize, number(54, 2)?, number(56, 2)?);
        let mut parts = Vec::new();
        for header in 0..count {
            let header = first + (header * size) as usize;
            if number(header, 4)? == LOADED {
                let (place, bytes) = (number(header + 8, 8)?, number(header + 32, 8)?);
                parts.push((number(header + 16, 8)?, place as usize, bytes as usize));
            }
        }
        Ok(Self { content, parts })
    }

    /// Returns the first bytes of the instruction at an address.
    fn bytes(&self, address: u64) -> Option<&[u8]> {
        self.parts.iter().find_map(|&(first, place, bytes)| {
            let offset =
                address.checked_sub(first).filter(|&offset| offset < bytes as u64)? as usize;
            self.content.get(place + offset..place + bytes.min(offset + START))
        })
    }
}

/// Returns whether an x86-64 instruction has the prefix `lock`, or exchanges a register with
/// memory, which implies it.
fn locks_memory(instruction: &[u8]) -> bool {
    const LOCK: u8 = 0xf0;
    let mut bytes = instruction.iter().copied().skip_while(
        |byte| matches!(byte, 0x26 | 0x2e | 0x36 | 0x3e | 0x64..=0x67 | 0xf2 | 0xf3 | 0x40..=0x4f),
    );
    match (bytes.next(), bytes.next()) {
        (Some(LOCK), _) => true,
        // `xchg`; its operand is a register if the highest two bits are set.
        (Some(0x86 | 0x87), Some(operands)) => operands < 0xc0,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn locked_instructions_are_recognised() {
        // lock xadd [rdi], rax; xchg [rdi], rax; lock cmpxchg [rdi], cx.
        for locked in [&[0xf0, 0x48, 0x0f, 0xc1, 0x07][..], &[0x48, 0x87, 0x07], &[0x66, 0xf0]] {
            assert!(locks_memory(locked), "{locked:x?}");
        }
        // xchg rbx, rbx; mov [rdi], rax; mov rax, 0xf0.
        for plain in [&[0x48, 0x87, 0xdb][..], &[0x48, 0x89, 0x07], &[0x48, 0xc7, 0xc0, 0xf0]] {
            assert!(!locks_memory(plain), "{plain:x?}");
        }
    }

    #[test]
    fn code_is_found_at_its_address_in_the_file() {
        let program = std::env::current_exe().unwrap();
        let file = ObjectFile::read(program.to_str().unwrap()).unwrap();
        assert_eq!(file.bytes(0).unwrap()[..4], *b"\x7fELF");
        assert_eq!(file.bytes(u64::MAX), None);
    }

    #[test]
    fn costs_of_callees_are_ignored() {
        let counts = "creator: test\npositions: instr line\nob=\nfn=one\n0x10 7 5\ncalls=1 0x20 0\n0x14 8 100\n0x18 9\n";
        assert_eq!(ObjectFiles::default().locked(counts).unwrap(), 0.0);
    }
}
