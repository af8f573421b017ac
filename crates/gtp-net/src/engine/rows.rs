//! Rows that sessions of one object share.
//!
//! A row takes 16 bytes for each entry, and sessions that serve the same listing in units of the
//! same length have the same row. It lives as long as one of them uses it. This module must not
//! know sessions.

use std::sync::{Arc, Mutex, PoisonError, Weak};

use gtp_store::{Manifest, Row, RowError};

/// A row in use, behind the listing and the payload of a unit for which it was made.
type InUse = (Weak<Manifest>, u16, Weak<Row>);

static IN_USE: Mutex<Vec<InUse>> = Mutex::new(Vec::new());

/// Returns the row of an object for units with a payload of this many bytes.
///
/// # Errors
/// If the object does not fit a row.
pub(super) fn of(manifest: &Arc<Manifest>, payload: u16) -> Result<Arc<Row>, RowError> {
    if let Some(row) = known(manifest, payload) {
        return Ok(row);
    }
    // The row is made without the lock, so that other sessions need not wait for a long one.
    let row = Arc::new(Row::of(manifest, payload)?);
    let mut in_use = IN_USE.lock().unwrap_or_else(PoisonError::into_inner);
    in_use.retain(|(_, _, row)| row.strong_count() > 0);
    in_use.push((Arc::downgrade(manifest), payload, Arc::downgrade(&row)));
    Ok(row)
}

fn known(manifest: &Arc<Manifest>, payload: u16) -> Option<Arc<Row>> {
    let in_use = IN_USE.lock().unwrap_or_else(PoisonError::into_inner);
    let mut rows = in_use.iter();
    // The weak reference keeps another listing from being placed at the same address.
    let is_it = |of: &Weak<Manifest>| std::ptr::eq(of.as_ptr(), Arc::as_ptr(manifest));
    rows.find(|(of, length, _)| *length == payload && is_it(of))?.2.upgrade()
}

#[cfg(test)]
mod tests {
    use gtp_store::{BlockSource, Pattern, RelPath, SyntheticSource};

    use super::*;

    fn listing() -> Arc<Manifest> {
        let name = RelPath::new("x").unwrap();
        Arc::clone(SyntheticSource::file(name, 1 << 20, Pattern::Zeros).manifest())
    }

    #[test]
    fn sessions_of_one_listing_and_one_length_of_units_share_a_row_and_others_do_not() {
        let (one, other) = (listing(), listing());
        let first = of(&one, 1_400).unwrap();
        assert!(Arc::ptr_eq(&first, &of(&one, 1_400).unwrap()));
        assert!(!Arc::ptr_eq(&first, &of(&one, 1_300).unwrap()));
        assert!(!Arc::ptr_eq(&first, &of(&other, 1_400).unwrap()));
        drop(first);
        assert!(known(&one, 1_400).is_none(), "it lives for as long as it is used");
        assert!(of(&one, 0).is_err());
    }
}
