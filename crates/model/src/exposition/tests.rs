use proptest::collection::vec;
use proptest::prelude::*;

use super::*;

/// A sample of which nothing is borrowed.
#[derive(Clone, Debug)]
struct Owned {
    name: String,
    labels: Vec<(String, String)>,
    value: f64,
    at: Option<i64>,
}

impl PartialEq for Owned {
    /// No number is itself.
    fn eq(&self, other: &Self) -> bool {
        let number =
            self.value.to_bits() == other.value.to_bits() || self.value.is_nan() && other.value.is_nan();
        number && (&self.name, &self.labels, self.at) == (&other.name, &other.labels, other.at)
    }
}

fn owned(sample: &Sample<'_>) -> Owned {
    let labels = sample.labels.iter().map(|(label, value)| (label.to_owned(), value.into_owned())).collect();
    Owned { name: sample.name.to_owned(), labels, value: sample.value, at: sample.at }
}

/// What is read of a text that comes in chunks of this size: samples, and how many lines were nonsense.
fn read(text: &[u8], chunk: usize) -> (Vec<Owned>, usize) {
    let (mut samples, mut nonsense) = (Vec::new(), 0);
    let mut lines = Lines::new();
    let mut each = |line: Result<Line<'_>, Nonsense>| match line {
        Ok(Line::Sample(sample)) => samples.push(owned(&sample)),
        Ok(_) => {}
        Err(_) => nonsense += 1,
    };
    text.chunks(chunk.max(1)).for_each(|chunk| lines.feed(chunk, &mut each));
    lines.finish(&mut each);
    (samples, nonsense)
}

fn sample_of(line: &str) -> Owned {
    match parse(line.as_bytes()) {
        Ok(Line::Sample(sample)) => owned(&sample),
        other => panic!("{line}: {other:?}"),
    }
}

#[test]
fn samples_are_read_with_their_labels_numbers_and_times() {
    let sample = sample_of(r#"a:b_total{pod="x",path="C:\\dir",said="\"hi\"\n",} +1.5e3 1795000000123"#);
    assert_eq!((sample.name.as_str(), sample.at), ("a:b_total", Some(1_795_000_000_123)));
    assert!((sample.value - 1500.0).abs() < f64::EPSILON);
    let labels: Vec<(&str, &str)> = sample.labels.iter().map(|(l, v)| (l.as_str(), v.as_str())).collect();
    assert_eq!(labels, [("pod", "x"), ("path", "C:\\dir"), ("said", "\"hi\"\n")]);
    assert!(sample_of("up\t{ a = \"b\" , c=\"}\" } \t NaN ").value.is_nan());
    assert!(sample_of("up -Inf -5").value < f64::MIN);
    assert!(sample_of("up{} 1").labels.is_empty());
}

#[test]
fn what_is_said_of_families_is_read_and_remarks_are_not() {
    let help = parse(b"# HELP up Whether it \\n is up.").unwrap();
    assert_eq!(help, Line::Help { name: "up", text: "Whether it \\n is up." });
    assert_eq!(parse(b"# HELP up").unwrap(), Line::Help { name: "up", text: "" });
    assert_eq!(parse(b"#  TYPE  up  gauge ").unwrap(), Line::Type { name: "up", kind: "gauge" });
    assert_eq!(parse(b"# EOF").unwrap(), Line::End);
    for remark in ["", " \t", "#", "# TYPEWRITERS are fine", "# UNIT up seconds", "#EOF me"] {
        assert_eq!(parse(remark.as_bytes()).unwrap(), Line::Blank, "{remark}");
    }
}

#[test]
fn nonsense_is_named() {
    let many: Vec<String> = (0..=MAX_LABELS).map(|n| format!("l{n}=\"\"")).collect();
    let many = format!("up{{{}}} 1", many.join(","));
    let cases: &[(&str, Nonsense)] = &[
        ("up", Nonsense::Value),
        ("up ", Nonsense::Value),
        ("up x", Nonsense::Value),
        ("up 1 soon", Nonsense::Time),
        ("up 1 1.5", Nonsense::Time),
        ("up 1 2 3", Nonsense::Time),
        ("1up 1", Nonsense::Name),
        ("{a=\"b\"} 1", Nonsense::Name),
        ("up{a:b=\"c\"} 1", Nonsense::Name),
        ("up{=\"c\"} 1", Nonsense::Name),
        ("up{a=\"b\"", Nonsense::Labels),
        ("up{a=\"b} 1", Nonsense::Labels),
        ("up{a=b} 1", Nonsense::Labels),
        ("up{a=\"\\d\"} 1", Nonsense::Labels),
        ("up{a=\"b\" c=\"d\"} 1", Nonsense::Labels),
        ("up{a} 1", Nonsense::Labels),
        ("up{pod=\"ours\",pod=\"theirs\"} 1", Nonsense::Twice),
        (&many, Nonsense::TooManyLabels),
        ("# TYPE up maybe", Nonsense::Kind),
        ("# TYPE 1up gauge", Nonsense::Name),
        ("# HELP", Nonsense::Name),
    ];
    for (line, why) in cases {
        assert_eq!(parse(line.as_bytes()), Err(*why), "{line}");
    }
    assert_eq!(parse(b"up{a=\"\xff\"} 1"), Err(Nonsense::NotText));
}

#[test]
fn a_line_that_is_too_long_costs_itself_and_nothing_more() {
    let long = format!("up{{a=\"{}\"}} 1", "x".repeat(3 * MAX_LINE));
    let text = format!("a 1\n{long}\nb 2\n{long}");
    for chunk in [1, 7, MAX_LINE, text.len()] {
        let (samples, nonsense) = read(text.as_bytes(), chunk);
        let names: Vec<&str> = samples.iter().map(|sample| sample.name.as_str()).collect();
        assert_eq!((names, nonsense), (vec!["a", "b"], 2), "in chunks of {chunk}");
    }
}

fn samples() -> impl Strategy<Value = Owned> {
    let labels = proptest::collection::btree_map("[a-zA-Z_][a-zA-Z0-9_]{0,6}", any::<String>(), 0..6);
    ("[a-zA-Z_:][a-zA-Z0-9_:]{0,12}", labels, any::<f64>(), any::<Option<i64>>())
        .prop_map(|(name, labels, value, at)| Owned { name, labels: labels.into_iter().collect(), value, at })
}

proptest! {
    #[test]
    fn any_bytes_are_read_or_dropped(text in vec(any::<u8>(), 0..400), chunk in 1_usize..50) {
        read(&text, chunk);
    }

    /// More of it is almost in the format than of any bytes.
    #[test]
    fn any_rows_of_signs_are_read_or_dropped(text in "[aé#{}=\",\\\\ \n\t1.eN-]{0,80}", chunk in 1_usize..20) {
        prop_assert_eq!(read(text.as_bytes(), chunk), read(text.as_bytes(), text.len()), "chunks do not matter");
    }

    #[test]
    fn what_was_written_is_read_as_it_was(written in vec(samples(), 0..8), chunk in 1_usize..300) {
        let mut text = String::new();
        let mut writer = Writer::new(&mut text);
        for sample in &written {
            writer.help(&sample.name, "a\nb\\c");
            writer.kind(&sample.name, "gauge");
            writer.sample(&sample.name, sample.labels.iter().map(|(l, v)| (l, v)), sample.value, sample.at);
        }
        prop_assert_eq!(read(text.as_bytes(), chunk), (written, 0));
    }
}
