//! Whole numbers on the command line with limits that the error message states.

use std::ops::RangeInclusive;

/// Returns a parser of whole numbers in `range`.
pub fn within<N>(
    range: RangeInclusive<u64>,
) -> impl Fn(&str) -> Result<N, String> + Clone + Send + Sync + 'static
where
    N: TryFrom<u64>,
{
    move |word| {
        let number = word.parse().ok().filter(|number| range.contains(number));
        number
            .and_then(|number| N::try_from(number).ok())
            .ok_or_else(|| format!("give a whole number from {} to {}", range.start(), range.end()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_numbers_are_limited() {
        let parse = within::<u32>(2..=50);
        for (word, number) in [("2", 2), ("50", 50)] {
            assert_eq!(parse(word), Ok(number));
        }
        for word in ["", "1", "51", "-2", "2.5", "many", "18446744073709551616"] {
            assert_eq!(parse(word).unwrap_err(), "give a whole number from 2 to 50", "{word}");
        }
    }
}
