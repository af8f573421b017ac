//! What a put gives back when its connection breaks.
//!
//! The objects to be sent belong to the caller, who tries again. These tests must not need a
//! server.

use super::*;

#[tokio::test]
async fn what_is_to_be_sent_comes_back_when_the_line_breaks_while_it_is_listed() {
    let mut lent = Vec::new();
    let (tell, told) = std::sync::mpsc::channel();
    let work = tokio::task::spawn_blocking(move || (vec!["tree"], told.recv()));
    let broken = Failure::new(FailureKind::Temporary, "the line broke");
    tell.send(()).unwrap();
    let given = give_back(&mut lent, work, Err(broken)).await;
    assert!(given.is_err_and(|failure| failure.is_temporary()));
    assert_eq!(lent, ["tree"]);
}
