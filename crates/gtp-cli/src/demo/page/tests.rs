//! The page of a run made by arithmetic: well-formed, complete in itself, and frank.

use super::*;
use crate::demo::analysis::analyse;
use crate::demo::synthetic;

fn page(record: &Record) -> String {
    render(record, &analyse(record))
}

/// Checks that every tag is closed by its own end, in order.
fn assert_well_formed(html: &str) {
    const VOID: [&str; 1] = ["meta"];
    let mut open: Vec<&str> = Vec::new();
    let mut rest = html.strip_prefix("<!DOCTYPE html>").expect("a doctype");
    while let Some(at) = rest.find('<') {
        rest = &rest[at + 1..];
        let end = rest.find('>').expect("every tag ends");
        let tag = &rest[..end];
        let name = tag.trim_start_matches('/').split([' ', '/', '\n']).next().unwrap_or("");
        assert_eq!(tag.matches('"').count() % 2, 0, "quotes pair up in <{tag}>");
        rest = &rest[end + 1..];
        if tag.starts_with('/') {
            assert_eq!(open.pop(), Some(name), "</{name}> ends what is open");
        } else if !tag.ends_with('/') && !VOID.contains(&name) {
            open.push(name);
        }
        if name == "script" && !tag.starts_with('/') {
            let close = rest.find("</script>").expect("every script ends");
            rest = &rest[close..];
        }
    }
    assert!(open.is_empty(), "{open:?}");
}

#[test]
fn the_page_is_well_formed() {
    assert_well_formed(&page(&synthetic::record(0.1)));
}

#[test]
fn the_page_of_a_run_that_saw_nothing_is_well_formed_and_says_so() {
    let html = page(&Record::default());
    assert_well_formed(&html);
    assert!(html.contains("0 of 6") && html.contains(r#"<td class="bad">NO</td>"#));
}

#[test]
fn the_page_needs_nothing_from_elsewhere() {
    let html = page(&synthetic::record(0.1));
    for reference in ["http://", "https://", "//cdn", "src=", "href=", "url(", "@import", "fetch("]
    {
        assert!(!html.contains(reference), "{reference}");
    }
    assert!(html.len() < 1_000_000, "{}", html.len());
}

#[test]
fn no_number_on_the_page_is_unreal() {
    for record in [synthetic::record(0.0), Record::default()] {
        let html = page(&record);
        assert!(!html.contains("NaN") && !html.contains("inf "), "a number is missing");
    }
}

#[test]
fn a_damaged_file_is_called_so() {
    let mut record = synthetic::record(0.0);
    record.arrivals[3].verified = false;
    let html = page(&record);
    assert!(html.contains("5 of 6") && html.contains(r#"<td class="bad">NO</td>"#));
}

#[test]
fn a_phase_that_does_not_settle_is_called_so() {
    let mut record = synthetic::record(0.0);
    record.samples.iter_mut().for_each(|s| s.carried[0] /= 2);
    let html = page(&record);
    assert!(html.contains(r#"<td class="bad">never</td>"#));
}

#[test]
fn values_under_the_pointer_are_those_of_the_record() {
    let html = page(&synthetic::record(0.0));
    let at = html.find(r#"id="steps-series">"#).expect("the numbers");
    let json = &html[at + r#"id="steps-series">"#.len()..];
    let json = &json[..json.find("</script>").expect("their end")];
    let series: serde_json::Value = serde_json::from_str(json).expect("proper JSON");
    let t = series["t"].as_array().expect("times");
    let middle = t.iter().position(|t| t.as_f64() > Some(14.0)).expect("all five are active");
    for k in 0..SESSIONS {
        let rate = series["rates"][k][middle].as_f64().expect("a rate");
        assert!((rate - 126.0).abs() < 1.0, "{rate}");
        assert_eq!(series["wanted"][k][middle].as_f64(), Some(126.0));
    }
    assert_eq!(series["limits"][series["limited"][0][middle].as_u64().unwrap() as usize], "sink");
}
