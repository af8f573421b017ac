//! Who is let in, who is believed, and what a broken list says.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use gtp_alloc::Rate;
use proptest::prelude::*;
use proptest::sample::select;

use super::*;
use crate::identity::Fingerprint;

fn key(n: u8) -> Fingerprint {
    Fingerprint::of_public_key(&[n])
}

fn host(text: &str) -> HostAddress {
    text.parse().unwrap()
}

struct List {
    _dir: tempfile::TempDir,
    path: PathBuf,
}

fn list(content: &str) -> List {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("list");
    fs::write(&path, content).unwrap();
    List { _dir: dir, path }
}

#[test]
fn a_host_is_known_unknown_or_changed() {
    let list = list(&format!(
        "# servers\n\na.example:4810 {}\n[::1]:4810 {}  # this machine\n",
        key(1),
        key(2)
    ));
    let known = KnownHosts::load(&list.path).unwrap();
    assert_eq!(known.check(&host("A.example:4810"), key(1)), Ok(()));
    assert_eq!(known.check(&host("[::1]:4810"), key(2)), Ok(()));
    let elsewhere = known.check(&host("a.example:4811"), key(1)).unwrap_err();
    assert!(matches!(elsewhere, HostRefused::Unknown { fingerprint, .. } if fingerprint == key(1)));
    assert!(elsewhere.to_string().contains(&format!("--fingerprint {}", key(1))));
    assert!(elsewhere.to_string().contains("--accept-new"));
    let changed = known.check(&host("[::1]:4810"), key(3)).unwrap_err();
    assert!(matches!(&changed, HostRefused::Changed { line: 4, known, .. } if *known == key(2)));
    assert!(changed.to_string().contains("remove line 4 of"));
}

#[test]
fn a_host_with_two_lines_may_have_either_key() {
    let list = list(&format!("h:1 {}\nh:1 {}\n", key(1), key(2)));
    let known = KnownHosts::load(&list.path).unwrap();
    assert_eq!(known.check(&host("h:1"), key(2)), Ok(()));
    assert!(matches!(known.check(&host("h:1"), key(3)), Err(HostRefused::Changed { line: 1, .. })));
}

#[test]
fn remembered_hosts_are_known_from_then_on_and_the_rest_of_the_file_stays() {
    let list = list("# mine, no newline at the end");
    KnownHosts::remember(&list.path, &host("h:1"), key(1)).unwrap();
    KnownHosts::remember(&list.path, &host("h:1"), key(1)).unwrap();
    let expected = format!("# mine, no newline at the end\nh:1 {}\n", key(1));
    assert_eq!(fs::read_to_string(&list.path).unwrap(), expected);
    let refused = KnownHosts::remember(&list.path, &host("h:1"), key(2)).unwrap_err();
    assert!(matches!(refused, TrustError::Refused(_)));
    assert_eq!(fs::metadata(&list.path).unwrap().permissions().mode() & 0o777, 0o600);
}

#[test]
fn hosts_remembered_at_once_are_all_there() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("new/known_hosts");
    std::thread::scope(|scope| {
        for n in 1..=16_u8 {
            let path = &path;
            scope.spawn(move || {
                let host = HostAddress::new("h", n.into()).unwrap();
                KnownHosts::remember(path, &host, key(n)).unwrap();
            });
        }
    });
    let known = KnownHosts::load(&path).unwrap();
    for n in 1..=16_u8 {
        assert_eq!(known.check(&HostAddress::new("h", n.into()).unwrap(), key(n)), Ok(()));
    }
}

#[test]
fn malformed_lines_are_named_by_file_and_number() {
    for (line, expected) in [
        ("h:1".to_owned(), LineError::Fingerprint),
        ("h:1 SHA256:abc".to_owned(), LineError::Fingerprint),
        (format!("h {}", key(1)), LineError::Host),
        (format!("h:0 {}", key(1)), LineError::Host),
        (format!("h:+1 {}", key(1)), LineError::Host),
        (format!("::1:4810 {}", key(1)), LineError::Host),
        (format!("[h]:1 {}", key(1)), LineError::Host),
        (format!("h:1 {} more", key(1)), LineError::Rest),
    ] {
        let list = list(&format!("# one\n\n{line}\n"));
        let refused = KnownHosts::load(&list.path).unwrap_err();
        assert!(
            matches!(&refused, TrustError::Line { line: 3, why, .. } if *why == expected),
            "{line}: {refused}"
        );
        assert!(refused.to_string().contains("line 3"));
        assert!(KnownHosts::remember(&list.path, &host("x:1"), key(1)).is_err());
    }
}

#[test]
fn a_missing_list_is_empty_and_an_unreadable_one_is_an_error() {
    let dir = tempfile::tempdir().unwrap();
    let missing = dir.path().join("none");
    assert!(AuthorizedKeys::load(&missing).unwrap().is_empty());
    assert!(KnownHosts::load(&missing).is_ok());
    assert!(matches!(KnownHosts::load(dir.path()), Err(TrustError::File { .. })));
    let binary = list("");
    fs::write(&binary.path, [0xFF, 0xFE]).unwrap();
    assert!(matches!(AuthorizedKeys::load(&binary.path), Err(TrustError::File { .. })));
    fs::write(&binary.path, vec![b'#'; FILE_MAX as usize + 1]).unwrap();
    assert!(matches!(AuthorizedKeys::load(&binary.path), Err(TrustError::File { .. })));
}

#[test]
fn a_listed_client_may_read_unless_the_line_says_otherwise() {
    let (a, b, c, d) = (key(1), key(2), key(3), key(4));
    let list = list(&format!("{a}\n{b} write # laptop\n{c} read,write\n{d} read\n{d} write\n"));
    let keys = AuthorizedKeys::load(&list.path).unwrap();
    assert_eq!(keys.access(&a), Access::ALL);
    assert_eq!(keys.access(&b), Access { read: false, write: true });
    assert_eq!(keys.access(&c), Access { read: true, write: true });
    assert_eq!(keys.access(&d), Access { read: true, write: true });
    assert_eq!(keys.access(&key(5)), Access::NONE);
    let public = ClientTrust { keys: keys.clone(), strangers: Strangers::MayRead };
    assert_eq!(public.access(&key(5)), Access::READ);
    assert_eq!(public.access(&b), Access { read: true, write: true });
    let closed = ClientTrust { keys, strangers: Strangers::Refused };
    assert_eq!(closed.access(&key(5)), Access::NONE);
}

#[test]
fn a_comment_never_grants_anything() {
    for (line, expected) in [
        (format!("{} alice", key(1)), LineError::Access),
        (format!("{} read,wirte", key(1)), LineError::Access),
        (format!("{} read alice", key(1)), LineError::Rest),
        (format!("{} Write", key(1)), LineError::Access),
        ("read".to_owned(), LineError::Fingerprint),
    ] {
        let list = list(&line);
        let refused = AuthorizedKeys::load(&list.path).unwrap_err();
        assert!(matches!(refused, TrustError::Line { line: 1, why, .. } if why == expected));
    }
}

#[test]
fn pinned_keys_alone_decide_where_they_are_given() {
    let trust = HostTrust::Pinned(vec![key(1), key(2)]);
    assert_eq!(trust.judge(&host("h:1"), key(2)), Ok(Standing::Trusted));
    let refused = trust.judge(&host("h:1"), key(3)).unwrap_err();
    assert!(matches!(refused, HostRefused::NotPinned { .. }));
}

#[test]
fn to_accept_new_hosts_is_not_to_accept_changed_ones() {
    let list = list(&format!("h:1 {}\n", key(1)));
    let known = KnownHosts::load(&list.path).unwrap();
    let trust = HostTrust::Known { hosts: known, unknown: UnknownHosts::Accept };
    assert_eq!(trust.judge(&host("h:1"), key(1)), Ok(Standing::Trusted));
    assert_eq!(trust.judge(&host("new:1"), key(2)), Ok(Standing::New));
    assert!(matches!(trust.judge(&host("h:1"), key(2)), Err(HostRefused::Changed { .. })));
    trust.remember(&host("new:1"), key(2)).unwrap();
    assert_eq!(KnownHosts::load(&list.path).unwrap().check(&host("new:1"), key(2)), Ok(()));
}

#[test]
fn host_addresses_read_back_as_they_are_printed() {
    for text in ["a.example:4810", "127.0.0.1:1", "[::1]:65535", "[fe80::1%eth0]:4810"] {
        assert_eq!(host(text).to_string(), text);
    }
    for (written, meant) in [
        ("[FE80:0:0::1%Va0]:1", "[fe80::1%Va0]:1"),
        ("[fe80::1%25va]:1", "[fe80::1%va]:1"),
        ("[fe80::1%25]:1", "[fe80::1%25]:1"),
        ("[fe80::1%251]:1", "[fe80::1%251]:1"),
        ("[fe80::1%va.100@x]:1", "[fe80::1%va.100@x]:1"),
        ("A.Example:1", "a.example:1"),
    ] {
        assert_eq!(host(written).to_string(), meant);
        assert_eq!(host(&host(written).to_string()), host(written));
    }
    for bad in ["[fe80::1%]:1", "[fe80::1%a b]:1", "[fe80::1%a#]:1", "h%eth0:1", "[fe80::1%a/]:1"] {
        assert_eq!(bad.parse::<HostAddress>(), Err(BadHostAddress), "{bad:?}");
    }
    for bad in ["", ":1", "h", "h:", "h:0", "h:65536", "h:-1", "a b:1", "h\n:1", "[::1:1", "#:1"] {
        assert_eq!(bad.parse::<HostAddress>(), Err(BadHostAddress), "{bad:?}");
    }
}

#[test]
fn options_of_a_line_name_groups_and_places_and_lines_of_one_key_add_up() {
    let text = format!(
        "{0} read group=staff,lab read=home/anna\n{0} write=\"scratch\" group=guests  # anna\n",
        key(1)
    );
    let keys = AuthorizedKeys::load(&list(&text).path).unwrap();
    assert_eq!(keys.access(&key(1)), Access::ALL);
    assert_eq!(keys.groups(&key(1)).collect::<Vec<_>>(), ["staff", "lab", "guests"]);
    let grants = keys.grants(&key(1));
    assert_eq!(grants.read, ["home/anna".parse().unwrap()]);
    assert_eq!(grants.write, ["scratch".parse().unwrap()]);
    assert!(grants.delete.is_empty() && keys.grants(&key(2)).is_empty());
}

#[test]
fn an_option_that_is_unknown_doubled_or_leads_elsewhere_makes_the_list_unusable() {
    for (options, expected) in [
        ("colour=red", LineError::Option),
        ("read=a read=b", LineError::Option),
        ("group=a group=b", LineError::Option),
        ("group=a,,b", LineError::Group),
        ("group=../x", LineError::Group),
        ("write=home/../etc", LineError::Place),
        ("write=", LineError::Place),
        ("read=a word", LineError::Rest),
        ("window=8-10", LineError::Hours),
        ("window=\"mon-fri", LineError::Hours),
        ("window=08:00-10:00 window=11:00-12:00", LineError::Option),
        ("reed read=a", LineError::Access),
        ("rate=0Mbit", LineError::Rate),
        ("rate=50", LineError::Rate),
        ("rate=-5Mbit", LineError::Rate),
        ("rate=99999999999999999999Tbit", LineError::Rate),
        ("rate=unlimited", LineError::Rate),
        ("guarantee=", LineError::Rate),
        ("guarantee=1001Tbit", LineError::Rate),
        ("weight=0", LineError::Weight),
        ("weight=-1", LineError::Weight),
        ("weight=NaN", LineError::Weight),
        ("weight=1e9", LineError::Weight),
        ("weight=heavy", LineError::Weight),
        ("rate=5Mbit rate=6Mbit", LineError::Option),
        ("weight=1 weight=1", LineError::Option),
        ("rate=5Mbit guarantee=6Mbit", LineError::Guarantee),
    ] {
        let list = list(&format!("{} {options}\n", key(1)));
        let refused = AuthorizedKeys::load(&list.path).unwrap_err();
        let fits = matches!(&refused, TrustError::Line { line: 1, why, .. } if *why == expected);
        assert!(fits, "{options}: {refused}");
    }
}

#[test]
fn hours_of_a_line_may_have_spaces_between_quotes_and_lines_of_one_key_add_up() {
    let text = format!(
        "{0} read window=\"mon-fri 20:00-06:00, sat 00:00-24:00\" group=staff # x\n\
         {0} window=10:00-11:00\n{1}\n",
        key(1),
        key(2)
    );
    let keys = AuthorizedKeys::load(&list(&text).path).unwrap();
    let said = keys.hours(&key(1)).to_string();
    assert_eq!(said, "mon-fri 20:00-06:00, sat 00:00-24:00, 10:00-11:00");
    assert_eq!(keys.groups(&key(1)).collect::<Vec<_>>(), ["staff"]);
    assert!(keys.hours(&key(2)).is_always() && keys.have_hours());
}

#[test]
fn of_several_lines_of_a_key_the_least_rate_and_the_greatest_weight_and_guarantee_count() {
    let text = format!(
        "{0} rate=50Mbit weight=0.5 guarantee=10Mbit\n{0} rate=\"6.25 MB/s\" weight=2 # anna\n\
         {0} rate=80Mbit guarantee=5Mbit\n{1} weight=low\n{2} read\n",
        key(1),
        key(2),
        key(3)
    );
    let keys = AuthorizedKeys::load(&list(&text).path).unwrap();
    let mbps = |rate| Some(Rate::from_mbps(rate));
    let share = KeyShare { rate: mbps(50), weight: Some(2.0), guarantee: mbps(10) };
    assert_eq!(keys.share(&key(1)), share);
    assert_eq!(keys.share(&key(2)).weight, Some(0.001));
    assert!(keys.share(&key(3)).is_none() && keys.share(&key(4)).is_none());
    assert!(keys.have_shares());
    assert_eq!(keys.guaranteed(), Rate::from_mbps(10));
}

#[test]
fn a_key_without_any_right_has_no_share_and_what_is_guaranteed_to_it_is_not_counted() {
    let text = format!("{0} read=pub guarantee=10Mbit\n{1} guarantee=30Mbit\n", key(1), key(2));
    let mut keys = AuthorizedKeys::load(&list(&text).path).unwrap();
    assert_eq!(keys.guaranteed(), Rate::from_mbps(40));
    keys.void_narrowed();
    assert!(keys.share(&key(1)).is_none());
    assert_eq!(keys.guaranteed(), Rate::from_mbps(30));
}

proptest! {
    /// Whatever stands on a line, its key gets nothing that no line may say.
    #[test]
    fn whatever_stands_on_a_line_a_share_is_within_bounds_or_the_line_is_an_error(
        values in proptest::collection::vec(
            (select(vec!["rate", "weight", "guarantee", "group"]), "[0-9.e+-]{0,8}[a-zA-Z/]{0,6}"),
            0..4,
        ),
    ) {
        let options: Vec<String> =
            values.iter().map(|(name, value)| format!("{name}={value}")).collect();
        let list = list(&format!("{} {}\n", key(1), options.join(" ")));
        match AuthorizedKeys::load(&list.path) {
            Ok(keys) => {
                let KeyShare { rate, weight, guarantee } = keys.share(&key(1));
                let said = |name: &str| values.iter().filter(|(there, _)| *there == name).count();
                let has = [rate.is_some(), weight.is_some(), guarantee.is_some()];
                prop_assert_eq!(has.map(usize::from), ["rate", "weight", "guarantee"].map(said));
                for rate in [rate, guarantee].into_iter().flatten() {
                    prop_assert!(rate > Rate::ZERO && !rate.is_unlimited());
                }
                prop_assert!(weight.is_none_or(|weight| (0.001..=1000.0).contains(&weight)));
                prop_assert!(guarantee.is_none_or(|least| rate.is_none_or(|most| least <= most)));
            }
            Err(TrustError::Line { line, .. }) => prop_assert_eq!(line, 1),
            Err(other) => prop_assert!(false, "{}", other),
        }
    }
}
