//! Random values as in clauses 2.1.6 and 4.3.2.

use super::schema::Cardinalities;
use crate::workload::encoding::Text;

/// The bits of non-uniform draws, for each kind of value.
const LAST_NAME_BITS: u32 = 255;
const CUSTOMER_BITS: u32 = 1_023;
const ITEM_BITS: u32 = 8_191;

const SYLLABLES: [&str; 10] =
    ["BAR", "OUGHT", "ABLE", "PRI", "PRES", "ESE", "ANTI", "CALLY", "ATION", "EING"];

/// The constants `C` of non-uniform draws (clause 2.1.6).
#[derive(Clone, Copy, Debug)]
pub(crate) struct Constants {
    last_name: u32,
    customer: u32,
    item: u32,
}

impl Constants {
    /// Returns the constants for loading.
    pub(crate) fn of_load(seed: u64) -> Self {
        let mut random = fastrand::Rng::with_seed(seed ^ 0xc0ad);
        Self {
            last_name: random.u32(0..=LAST_NAME_BITS),
            customer: random.u32(0..=CUSTOMER_BITS),
            item: random.u32(0..=ITEM_BITS),
        }
    }

    /// Returns the constants for a run on a database that was loaded with `self`. The constant of
    /// last names differs by 65 to 119, but not by 96 or 112 (clause 2.1.6.1).
    pub(crate) fn of_run(&self, seed: u64) -> Self {
        let mut random = fastrand::Rng::with_seed(seed ^ 0x0c05);
        loop {
            let last_name = random.u32(0..=LAST_NAME_BITS);
            let apart = last_name.abs_diff(self.last_name);
            if (65..=119).contains(&apart) && apart != 96 && apart != 112 {
                return Self { last_name, ..Self::of_load(!seed) };
            }
        }
    }
}

/// Draws values.
#[derive(Clone, Debug)]
pub(super) struct Random {
    generator: fastrand::Rng,
    constants: Constants,
    cardinalities: Cardinalities,
}

impl Random {
    pub(super) fn new(seed: u64, constants: Constants, cardinalities: Cardinalities) -> Self {
        Self { generator: fastrand::Rng::with_seed(seed), constants, cardinalities }
    }

    /// Returns a uniform number, both ends included.
    #[inline]
    pub(super) fn between(&mut self, least: u32, most: u32) -> u32 {
        self.generator.u32(least..=most)
    }

    /// Returns a uniform number of a district, carrier or similar.
    pub(super) fn small(&mut self, least: u8, most: u8) -> u8 {
        self.generator.u8(least..=most)
    }

    /// Returns a uniform number of a warehouse.
    pub(super) fn warehouse(&mut self, least: u16, most: u16) -> u16 {
        self.generator.u16(least..=most)
    }

    /// Returns an amount of money in cents.
    pub(super) fn cents(&mut self, least: i64, most: i64) -> i64 {
        self.generator.i64(least..=most)
    }

    /// Returns true in this percentage of cases.
    pub(super) fn percent(&mut self, percent: u32) -> bool {
        self.generator.u32(1..=100) <= percent
    }

    /// `NURand(A, x, y)`.
    fn non_uniform(&mut self, bits: u32, constant: u32, least: u32, most: u32) -> u32 {
        let drawn = self.between(0, bits) | self.between(least, most);
        (drawn + constant) % (most - least + 1) + least
    }

    pub(super) fn customer(&mut self) -> u32 {
        let (constant, most) = (self.constants.customer, self.cardinalities.customers);
        self.non_uniform(CUSTOMER_BITS, constant, 1, most)
    }

    pub(super) fn item(&mut self) -> u32 {
        let (constant, most) = (self.constants.item, self.cardinalities.items);
        self.non_uniform(ITEM_BITS, constant, 1, most)
    }

    /// Returns a last name that some customers have.
    pub(super) fn last_name(&mut self) -> Text<16> {
        let (constant, names) = (self.constants.last_name, self.cardinalities.last_names());
        last_name_of(self.non_uniform(LAST_NAME_BITS, constant, 0, names - 1))
    }

    /// Returns letters and digits, with this minimum and maximum length.
    pub(super) fn text<const N: usize>(&mut self, least: usize, most: usize) -> Text<N> {
        let mut bytes = [0; N];
        let length = self.generator.usize(least..=most);
        bytes[..length].fill_with(|| self.generator.alphanumeric() as u8);
        Text::of(&bytes[..length])
    }

    /// Returns `N` digits.
    pub(super) fn digits<const N: usize>(&mut self) -> Text<N> {
        Text::of(&std::array::from_fn::<u8, N, _>(|_| b'0' + self.generator.u8(0..10)))
    }

    /// Returns data of an item or of stock: a tenth contains "ORIGINAL" (clause 4.3.3.1).
    pub(super) fn data(&mut self) -> Text<50> {
        let text: Text<50> = self.text(26, 50);
        if !self.percent(10) {
            return text;
        }
        let mut bytes = text.padded();
        let length = text.as_bytes().len();
        let place = self.generator.usize(0..=length - ORIGINAL.len());
        bytes[place..place + ORIGINAL.len()].copy_from_slice(ORIGINAL);
        Text::of(&bytes[..length])
    }

    /// Returns a permutation of the numbers from 1 to `most`.
    pub(super) fn permutation(&mut self, most: u32) -> Vec<u32> {
        let mut numbers: Vec<u32> = (1..=most).collect();
        self.generator.shuffle(&mut numbers);
        numbers
    }

    pub(super) fn shuffle<T>(&mut self, things: &mut [T]) {
        self.generator.shuffle(things);
    }
}

/// A word that a tenth of the data of items and stock contains.
pub(super) const ORIGINAL: &[u8] = b"ORIGINAL";

/// Returns the last name for a number below 1000 (clause 4.3.2.3).
pub(super) fn last_name_of(number: u32) -> Text<16> {
    assert!(number < 1_000, "there is no last name {number}");
    let syllable = |digit: u32| SYLLABLES[(digit % 10) as usize];
    let parts = [syllable(number / 100), syllable(number / 10), syllable(number)];
    Text::of(parts.concat().as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn last_names_are_composed_of_syllables() {
        assert_eq!(last_name_of(371).as_bytes(), b"PRICALLYOUGHT");
        assert_eq!(last_name_of(40).as_bytes(), b"BARPRESBAR");
        let longest = (0..1_000).map(|number| last_name_of(number).as_bytes().len()).max();
        assert_eq!(longest, Some(15), "none is cut short");
    }

    #[test]
    fn constants_of_load_and_run_differ_as_specified() {
        for seed in 0..200 {
            let load = Constants::of_load(seed);
            let apart = load.of_run(seed).last_name.abs_diff(load.last_name);
            assert!((65..=119).contains(&apart) && apart != 96 && apart != 112, "{apart}");
        }
    }

    #[test]
    fn draws_are_in_range_and_non_uniform() {
        let cardinalities = Cardinalities::specified(1);
        let mut random = Random::new(1, Constants::of_load(1), cardinalities);
        let mut counts = vec![0_u32; 3_001];
        for _ in 0..300_000 {
            counts[random.customer() as usize] += 1;
            let item = random.item();
            assert!((1..=cardinalities.items).contains(&item), "{item}");
        }
        assert_eq!(counts[0], 0);
        let most = *counts.iter().max().unwrap();
        assert!(most > 1_000, "a uniform draw would give each a hundred, not {most}");
        let originals = (0..10_000).filter(|_| {
            let data = random.data();
            data.as_bytes().windows(ORIGINAL.len()).any(|part| part == ORIGINAL)
        });
        let originals = originals.count();
        assert!((800..1_200).contains(&originals), "{originals} of 10 000");
    }
}
