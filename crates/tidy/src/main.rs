//! Prints what the repository's lint finds, one line each, and fails when there is any.
//!
//! `cargo run -p tidy` checks; `cargo run -p tidy -- propose` prints an exemption for each breach
//! that may have one, with the reason left empty, because a reason is a person's to give (the
//! check refuses an empty one). This file only prints.

use std::path::Path;
use std::process::ExitCode;

fn main() -> ExitCode {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let propose = std::env::args().nth(1).is_some_and(|verb| verb == "propose");
    let result = if propose {
        tidy::breaches(&root).map(|found| tidy::exemptions::propose(&found))
    } else {
        tidy::complaints(&root)
    };
    match result {
        Ok(lines) => {
            for line in &lines {
                println!("{line}");
            }
            if propose || lines.is_empty() {
                ExitCode::SUCCESS
            } else {
                eprintln!("tidy: {} complaints", lines.len());
                ExitCode::FAILURE
            }
        }
        Err(sentence) => {
            eprintln!("tidy: {sentence}");
            ExitCode::FAILURE
        }
    }
}
