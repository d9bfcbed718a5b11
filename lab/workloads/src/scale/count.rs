//! Counts on the command line: `50M`, `10k`, `1_000_000`, `2.5M`.

use std::fmt;
use std::str::FromStr;

/// A count, parsed and printed with a decimal suffix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Count(pub u64);

impl FromStr for Count {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let cleaned: String = text.chars().filter(|c| *c != '_' && *c != ' ').collect();
        let (digits, factor) = match cleaned.char_indices().last() {
            Some((at, 'k' | 'K')) => (&cleaned[..at], 1e3),
            Some((at, 'm' | 'M')) => (&cleaned[..at], 1e6),
            Some((at, 'g' | 'G')) => (&cleaned[..at], 1e9),
            _ => (&cleaned[..], 1.0),
        };
        let number: f64 =
            digits.parse().map_err(|_| format!("'{text}' is no count, as 1000, 10k or 50M are"))?;
        let count = number * factor;
        // Above 2^53 a float does not represent every count, and no machine holds that many
        // records.
        if !(1.0..=9e15).contains(&count) || count.fract() != 0.0 {
            return Err(format!("'{text}' is no whole number above 0"));
        }
        Ok(Self(count as u64))
    }
}

impl fmt::Display for Count {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(count) = *self;
        for (factor, suffix) in [(1_000_000_000, "G"), (1_000_000, "M"), (1_000, "k")] {
            if count >= factor && count.is_multiple_of(factor) {
                return write!(f, "{}{suffix}", count / factor);
            }
        }
        write!(f, "{count}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn suffixes_are_parsed_and_printed() {
        for (text, count) in [("7", 7), ("10k", 10_000), ("2.5M", 2_500_000), ("1_000", 1_000)] {
            assert_eq!(text.parse(), Ok(Count(count)), "{text}");
        }
        for text in ["", "k", "-1", "0", "0.5", "many", "1e30", "NaN"] {
            assert!(text.parse::<Count>().is_err(), "{text}");
        }
        assert_eq!(Count(50_000_000).to_string(), "50M");
        assert_eq!(Count(1_500).to_string(), "1500");
    }
}
