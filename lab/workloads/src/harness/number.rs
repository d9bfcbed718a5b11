//! Numbers as text for people: few digits, a unit prefix, grouped thousands.

/// Returns three significant digits with a decimal prefix: `249 k`, `1.62 M`.
pub fn scaled(value: f64) -> String {
    let (divisor, prefix) = match value.abs() {
        v if v >= 999.5e6 => (1e9, " G"),
        v if v >= 999.5e3 => (1e6, " M"),
        v if v >= 999.5 => (1e3, " k"),
        _ => (1.0, ""),
    };
    format!("{}{prefix}", three_digits(value / divisor))
}

/// Returns three significant digits without a prefix: `0.95`, `12.3`, `249`.
pub fn three_digits(value: f64) -> String {
    let decimals = match value.abs() {
        v if v >= 99.95 => 0,
        v if v >= 9.995 => 1,
        _ => 2,
    };
    format!("{value:.decimals$}")
}

/// Like `scaled`, without trailing zeros, for axes: `140 k`, `2.5 M`, `0`.
pub fn tick(value: f64) -> String {
    let text = scaled(value);
    let (number, prefix) = text.split_once(' ').unwrap_or((&text, ""));
    let number = match number.contains('.') {
        true => number.trim_end_matches('0').trim_end_matches('.'),
        false => number,
    };
    [number, prefix].join(" ").trim_end().to_owned()
}

/// Returns digits in groups of three: `50 000 000`.
pub fn grouped(value: u64) -> String {
    let digits = value.to_string();
    let mut out = String::with_capacity(digits.len() + digits.len() / 3);
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(' ');
        }
        out.push(digit);
    }
    out
}

/// Returns bytes with a binary prefix: `4.19 GiB`.
pub fn bytes(value: u64) -> String {
    const PREFIXES: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
    let mut scaled = value as f64;
    let mut prefix = 0;
    while scaled >= 999.5 && prefix + 1 < PREFIXES.len() {
        scaled /= 1024.0;
        prefix += 1;
    }
    match prefix {
        0 => format!("{value} B"),
        _ => format!("{} {}", three_digits(scaled), PREFIXES[prefix]),
    }
}

/// Returns a time given in nanoseconds: `850 ns`, `1.62 ms`.
pub fn nanoseconds(value: u64) -> String {
    let value = value as f64;
    match value {
        v if v >= 999.5e6 => format!("{} s", three_digits(v / 1e9)),
        v if v >= 999.5e3 => format!("{} ms", three_digits(v / 1e6)),
        v if v >= 999.5 => format!("{} µs", three_digits(v / 1e3)),
        v => format!("{v:.0} ns"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_parsed_as_people_write_them() {
        assert_eq!(scaled(249_123.0), "249 k");
        assert_eq!(scaled(1_623_000.0), "1.62 M");
        assert_eq!(scaled(999_900.0), "1.00 M");
        assert_eq!(scaled(12.34), "12.3");
        assert_eq!([0.0, 5.0, 140e3, 2.5e6].map(tick), ["0", "5", "140 k", "2.5 M"]);
        assert_eq!(grouped(50_000_000), "50 000 000");
        assert_eq!(grouped(999), "999");
        assert_eq!(bytes(4_500_000_000), "4.19 GiB");
        assert_eq!(bytes(17), "17 B");
        assert_eq!(nanoseconds(850), "850 ns");
        assert_eq!(nanoseconds(1_620_000), "1.62 ms");
    }
}
