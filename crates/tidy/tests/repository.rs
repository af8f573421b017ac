//! The repository keeps its own rules.

use std::path::Path;

#[test]
fn the_repository_is_tidy() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let complaints = tidy::complaints(&root).expect("the repository can be read");
    assert!(
        complaints.is_empty(),
        "{} complaints (cargo run -p tidy prints them alone):\n{}",
        complaints.len(),
        complaints.join("\n")
    );
}
