//! The units that start the daemon say what they mean where the system's manager reads it.

/// The section of a unit file in which a setting stands.
fn section_of<'a>(unit: &'a str, setting: &str) -> Option<&'a str> {
    let mut section = None;
    for line in unit.lines() {
        if line.starts_with('[') {
            section = Some(line);
        } else if line.split('=').next() == Some(setting) {
            return section;
        }
    }
    None
}

#[test]
fn no_number_of_ends_keeps_the_daemon_from_being_started_again() {
    let host = include_str!("../../../packaging/systemd/gtpd.service");
    let user = include_str!("../../../packaging/systemd/user-gtpd.service");
    let socket = include_str!("../../../packaging/systemd/gtpd.socket");
    for unit in [host, user] {
        assert_eq!(section_of(unit, "StartLimitIntervalSec"), Some("[Unit]"));
        assert_eq!(section_of(unit, "Restart"), Some("[Service]"));
    }
    assert_eq!(section_of(socket, "TriggerLimitIntervalSec"), Some("[Socket]"));
}
