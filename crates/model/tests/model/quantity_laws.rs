//! What holds for all quantities.

use kubeocean_model::quantity::Quantity;
use proptest::prelude::*;

const SUFFIXES: [&str; 20] = [
    "", "n", "u", "m", "k", "M", "G", "T", "P", "E", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei", "e3", "E-2", "e1",
    "e-11",
];

/// Texts of quantities, canonical or not.
fn text() -> impl Strategy<Value = String> {
    ("[+-]?", "[0-9]{1,16}", prop::option::of("[0-9]{0,12}"), prop::sample::select(&SUFFIXES[..])).prop_map(
        |(sign, whole, fraction, suffix)| {
            let fraction = fraction.map(|digits| format!(".{digits}")).unwrap_or_default();
            format!("{sign}{whole}{fraction}{suffix}")
        },
    )
}

/// Far from where numbers stop.
fn quantity() -> impl Strategy<Value = Quantity> {
    text().prop_map(|text| text.parse().unwrap()).prop_filter("may not stop", |quantity: &Quantity| {
        let limit: Quantity = "1e27".parse().unwrap();
        *quantity < limit && *quantity > Quantity::ZERO - limit
    })
}

/// Micro-units, as a number of its own.
fn micros() -> impl Strategy<Value = (i128, String)> {
    (any::<i64>(), prop::sample::select(vec![("u", 1), ("m", 1000), ("", 1_000_000), ("k", 1_000_000_000)]))
        .prop_map(|(number, (suffix, factor))| (i128::from(number) * factor, format!("{number}{suffix}")))
}

proptest! {
    #[test]
    fn what_is_printed_reads_as_the_same_number(quantity in quantity()) {
        let printed = quantity.to_string();
        prop_assert_eq!(printed.parse(), Ok(quantity));
        prop_assert_eq!(printed.parse::<Quantity>().unwrap().to_string(), printed);
    }

    #[test]
    fn what_a_server_stores_it_stores_again(text in text()) {
        let stored = Quantity::as_stored(&text).unwrap();
        prop_assert_eq!(&Quantity::as_stored(&stored).unwrap(), &stored);
        prop_assert_eq!(stored.parse::<Quantity>(), text.parse());
    }

    #[test]
    fn what_we_print_a_server_stores_as_it_is(quantity in quantity()) {
        let printed = quantity.to_string();
        prop_assert_eq!(Quantity::as_stored(&printed).unwrap(), printed.as_str());
    }

    #[test]
    fn the_order_is_that_of_the_numbers((one, one_text) in micros(), (other, other_text) in micros()) {
        let (a, b): (Quantity, Quantity) = (one_text.parse().unwrap(), other_text.parse().unwrap());
        prop_assert_eq!(a.cmp(&b), one.cmp(&other));
        prop_assert_eq!((a + b).cmp(&Quantity::ZERO), (one + other).cmp(&0));
    }

    #[test]
    fn addition_is_addition(a in quantity(), b in quantity(), c in quantity()) {
        prop_assert_eq!(a + b, b + a);
        prop_assert_eq!((a + b) + c, a + (b + c));
        prop_assert_eq!(a + b - b, a);
        prop_assert_eq!(a + Quantity::ZERO, a);
        prop_assert_eq!(a - a, Quantity::ZERO);
        prop_assert_eq!(a.cmp(&b), (a + c).cmp(&(b + c)));
    }

    #[test]
    fn a_share_lies_between_nothing_and_all(quantity in quantity(), percent in 0_u8..=100) {
        let quantity = quantity.at_least_zero();
        let share = quantity.percent(percent);
        prop_assert!(Quantity::ZERO <= share && share <= quantity);
        prop_assert!(percent == 100 || share <= quantity.percent(percent + 1));
        prop_assert_eq!(quantity.percent(100), quantity);
        let rest = quantity - share - quantity.percent(100 - percent);
        prop_assert!(Quantity::ZERO <= rest && rest <= "1n".parse().unwrap());
    }

    #[test]
    fn rounding_moves_by_less_than_a_step(quantity in quantity()) {
        let (one, milli) = (Quantity::whole(1), Quantity::milli(1));
        let within = |low: Quantity, high: Quantity, step: Quantity| {
            low <= quantity && quantity <= high && quantity - low < step && high - quantity < step
        };
        prop_assert!(within(quantity.floor_to_whole(), quantity.ceil_to_whole(), one));
        prop_assert!(within(quantity.floor_to_milli(), quantity.ceil_to_milli(), milli));
    }

    #[test]
    fn no_text_makes_it_panic(text in "\\PC{0,40}", digits in "[0-9.eEinumkKMGTP+-]{0,60}") {
        for text in [text, digits] {
            if let Ok(quantity) = text.parse::<Quantity>() {
                let _ = (quantity.to_string(), quantity + quantity, quantity - quantity, quantity.percent(200));
                let _ = (quantity.ceil_to_whole(), quantity.floor_to_whole(), quantity.as_f64());
                prop_assert_eq!(quantity.to_string().parse(), Ok(quantity));
            }
        }
    }
}
