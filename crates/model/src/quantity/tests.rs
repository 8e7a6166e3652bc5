use serde_json::json;

use super::*;

fn q(text: &str) -> Quantity {
    text.parse().unwrap()
}

#[test]
fn a_number_is_printed_in_the_family_it_was_written_in() {
    for (text, printed) in [
        ("0", "0"),
        ("1.5", "1500m"),
        ("1.5Gi", "1536Mi"),
        ("1024", "1024"),
        ("1000", "1k"),
        ("1024Ki", "1Mi"),
        ("1000Ki", "1000Ki"),
        ("1.1Ki", "1126400m"),
        ("1023.5Ki", "1048064"),
        ("10e2", "1e3"),
        ("123e-1", "12300e-3"),
        ("-1.5Gi", "-1536Mi"),
        ("0.0000000001", "1n"),
        ("8Ei", "9223372036854775807"),
        ("0.5Ki", "512"),
        ("1e18", "1e18"),
        ("1500E", "1500E"),
    ] {
        assert_eq!(q(text).to_string(), printed, "{text}");
    }
}

#[test]
fn what_is_finer_than_nano_is_rounded_away_from_zero() {
    assert_eq!(q("0.1n"), q("1n"));
    assert_eq!(q("1.0000000001"), q("1000000001n"));
    assert_eq!(q("-0.1n"), q("-1n"));
    assert_eq!(q("1e-1000000"), q("1n"));
    assert_eq!(q("0e-1000000"), Quantity::ZERO);
}

#[test]
fn a_number_beyond_reason_stops_and_does_not_overflow() {
    let huge = q("1e1000000");
    assert_eq!(huge, Quantity::MAX);
    assert_eq!(huge + huge, Quantity::MAX);
    assert_eq!(huge.percent(100), Quantity::MAX);
    assert_eq!(huge.percent(255), Quantity::MAX);
    assert_eq!(Quantity::ZERO - huge - huge, q("-1e1000000"));
    assert_eq!(huge.ceil_to_whole(), Quantity::MAX);
    assert!(q(&"9".repeat(4000)) == Quantity::MAX && q(&format!("{}Ki", "9".repeat(4000))) < Quantity::MAX);
    assert_eq!(q(&huge.to_string()), huge);
    assert_eq!(q(&(Quantity::ZERO - huge).floor_to_whole().to_string()), Quantity::ZERO - huge);
}

#[test]
fn a_suffix_that_nobody_knows_is_not_dropped() {
    assert_eq!(q("1000E").to_string(), "1e21", "an API server prints 1");
    assert_eq!((q("4Ei") + q("4Ei")).to_string(), "9223372036854775808");
    assert_eq!(q("1000E").to_string().parse(), Ok(q("1e21")));
}

#[test]
fn a_text_that_looks_canonical_is_stored_as_it_is() {
    for kept in ["1.500", "+5", "005", "1E3", "1e+3", "0001Ki", "5.", "1.234k"] {
        assert_eq!(Quantity::as_stored(kept).unwrap(), kept);
    }
    assert_eq!(Quantity::as_stored(" 1.5 ").unwrap(), "1500m");
    assert_eq!(Quantity::as_stored("0.100").unwrap(), "100m");
}

#[test]
fn a_list_of_resources_has_nothing_finer_than_a_thousandth() {
    for (text, listed) in
        [("1n", "1m"), ("-2.5m", "-3m"), ("1.500", "1.500"), ("12.345m", "13m"), ("+8u", "1m")]
    {
        assert_eq!(Quantity::as_listed(text).unwrap(), listed, "{text}");
    }
}

#[test]
fn an_error_names_the_text_and_the_fix() {
    let error = |text: &str| text.parse::<Quantity>().unwrap_err().to_string();
    assert_eq!(error(""), "the quantity is empty: write a number such as 4, 500m or 16Gi");
    assert_eq!(error("four"), "`four` is not a quantity: write a number such as 4, 500m or 16Gi");
    assert_eq!(error("Ei"), "`Ei` has no digits: write a number such as 4, 500m or 16Gi");
    assert!(error("4KB").starts_with("`4KB` is not"));
    assert!(error("4K").starts_with("`4K` ends in the unknown suffix `K`: use one of n u m k M"));
}

#[test]
fn a_share_is_rounded_down() {
    assert_eq!(q("3").percent(33), q("990m"));
    assert_eq!(q("1n").percent(99), Quantity::ZERO);
    assert_eq!(q("1048575999").percent(50).floor_to_whole(), q("524287999"));
    assert_eq!(q("7").percent(0), Quantity::ZERO);
    assert_eq!(q("7Gi").percent(100).to_string(), "7Gi");
}

#[test]
fn rounding_goes_to_the_side_it_says() {
    assert_eq!(q("1500m").floor_to_whole(), q("1"));
    assert_eq!(q("-1500m").floor_to_whole(), q("-2"));
    assert_eq!(q("1500m").ceil_to_whole(), q("2"));
    assert_eq!(q("1500u").floor_to_milli(), q("1m"));
    assert_eq!(q("1500u").ceil_to_milli(), q("2m"));
    assert_eq!(q("2").ceil_to_whole(), q("2"));
}

#[test]
fn nothing_takes_the_format_of_what_is_added() {
    assert_eq!((Quantity::ZERO + q("1Gi")).to_string(), "1Gi");
    assert_eq!((q("1Gi") + q("1G")).format(), Format::BinarySi);
    assert_eq!([q("1Gi"), q("1Gi")].into_iter().sum::<Quantity>().to_string(), "2Gi");
}

#[test]
fn json_has_strings_and_numbers() {
    let read = |value| serde_json::from_value::<Quantity>(value);
    assert_eq!(read(json!("500m")).unwrap(), q("500m"));
    assert_eq!(read(json!(4)).unwrap(), q("4"));
    assert_eq!(read(json!(-4)).unwrap(), q("-4"));
    assert_eq!(read(json!(0.5)).unwrap(), q("500m"));
    assert_eq!(read(json!(u64::MAX)).unwrap(), q("18446744073709551615"));
    assert_eq!(read(json!(null)).unwrap(), Quantity::ZERO);
    assert!(read(json!("x")).is_err() && read(json!([])).is_err());
    assert_eq!(serde_json::to_value(q("1.5")).unwrap(), json!("1500m"));
}

#[test]
fn a_number_is_printed_as_short_as_it_can_be_and_nonsense_is_none() {
    for (given, printed) in [
        ("1", "1"),
        ("1000m", "1"),
        ("0.5", "500m"),
        ("1.5Gi", "1536Mi"),
        ("1024Ki", "1Mi"),
        ("1000Ki", "1000Ki"),
        ("100Mi", "100Mi"),
        ("1e3", "1e3"),
        ("12e6", "12e6"),
        ("1500", "1500"),
        ("2000", "2k"),
        ("0", "0"),
        ("-1", "-1"),
        ("0.1m", "100u"),
        ("512Ki", "512Ki"),
        ("+3", "3"),
        (".5", "500m"),
        ("5.", "5"),
    ] {
        assert_eq!(q(given).to_string(), printed, "{given}");
    }
    for wrong in ["", "4 cores", "16gi", "1..2", "1e", "0x10"] {
        assert!(wrong.parse::<Quantity>().is_err(), "{wrong}");
    }
}
