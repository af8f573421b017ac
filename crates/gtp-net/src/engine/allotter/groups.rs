//! What a server's clients and groups of them have under a daemon: what the server says, within
//! what its user has.
//!
//! The real hub and the real allotters in virtual time, at both ends. What the server's settings
//! mean is not known here.

use std::collections::BTreeMap;
use std::sync::Arc;

use gtp_alloc::{Rate, Span};
use gtp_proto::agent::Side as AgentSide;
use gtp_proto::{Class, Classes, Law, Owner};
use gtp_share::{Change, KEYS, Of, SessionView};
use gtpd::{HubConfig, Right};

use super::caps::config;
use super::world::{Session, World};
use crate::engine::{Allowances, Named};

const SERVER: u32 = 7;

/// A key of a server's list, with a weight, a limit in Mbit/s and a group.
fn key(number: u64, weight: f32, most: u64, class: u32) -> Owner {
    let most = if most == 0 { Rate::UNLIMITED } else { Rate::from_mbps(most) };
    Owner { number: number | KEYS, most, weight, class }
}

/// A group with a guarantee and a limit in Mbit/s.
fn class(number: u32, least: u64, most: u64) -> Class {
    let most = if most == 0 { Rate::UNLIMITED } else { Rate::from_mbps(most) };
    Class { number, least: Rate::from_mbps(least), most, each: Rate::UNLIMITED }
}

/// A daemon of 100 Mbit/s, a server whose sessions these are and another user's process with one.
fn world(side: AgentSide, owners: &[Owner], classes: &[Class], config: &HubConfig) -> World {
    let mut world = World::new();
    world.daemon(config);
    let all = Rate::from_mbps(100);
    let server = world.process(side, SERVER, all);
    let sessions = (1..).zip(owners).map(|(id, &owner)| {
        let mut session = Session::new(id, Law::Grant, Rate::UNLIMITED);
        session.owner = owner;
        session
    });
    world.processes[server].sessions.extend(sessions);
    set(&mut world, classes);
    let other = world.process(side, SERVER + 1, all);
    world.processes[other].sessions.push(Session::new(1, Law::Grant, Rate::UNLIMITED));
    world.attach(server);
    world.attach(other);
    world
}

/// The server's settings change.
fn set(world: &mut World, classes: &[Class]) {
    let named = Named { name: "anna".into(), groups: "lab".into() };
    let names = BTreeMap::from([(1 | KEYS, named)]);
    let classes = Classes::new(classes.to_vec());
    let allowances = Allowances { classes, names, ..Allowances::default() };
    world.processes[0].allotter.set_allowances(&Arc::new(allowances));
}

/// Mbit/s of each session of the server, and of the other user, after two seconds.
fn rates(world: &mut World) -> Vec<f64> {
    world.run(Span::from_secs(2));
    let sessions = world.processes.iter().flat_map(|process| &process.sessions);
    sessions.map(|session| session.rate().as_f64() / 1e6).collect()
}

fn has(world: &mut World, expected: &[f64]) {
    let rates = rates(world);
    let near = |(rate, expected): (&f64, &f64)| (rate - expected).abs() < 0.005 * expected + 0.001;
    assert!(
        rates.len() == expected.len() && rates.iter().zip(expected).all(near),
        "{rates:?} and not {expected:?}"
    );
}

const SIDES: [AgentSide; 2] = [AgentSide::Source, AgentSide::Sink];

#[test]
fn clients_share_what_their_servers_user_has_by_weight_and_a_limit_is_of_all_sessions_of_a_client()
{
    for side in SIDES {
        let owners = [key(1, 3.0, 0, 0), key(2, 1.0, 0, 0)];
        has(&mut world(side, &owners, &[], &config()), &[37.5, 12.5, 50.0]);
        let owners = [key(1, 3.0, 0, 0), key(2, 1.0, 8, 0), key(2, 1.0, 8, 0)];
        // What a client leaves goes to all by weight: one and three quarters.
        let unit = 92.0 / 1.75;
        has(&mut world(side, &owners, &[], &config()), &[0.75 * unit, 4.0, 4.0, unit]);
    }
}

#[test]
fn a_groups_limit_is_of_its_members_together_and_a_change_counts_for_sessions_that_run() {
    for side in SIDES {
        let owners = [key(1, 1.0, 0, 5), key(2, 1.0, 0, 5), key(3, 1.0, 0, 0)];
        let mut world = world(side, &owners, &[class(5, 0, 10)], &config());
        let unit = 90.0 / (4.0 / 3.0);
        has(&mut world, &[5.0, 5.0, unit / 3.0, unit]);
        set(&mut world, &[class(5, 0, 20)]);
        let unit = 80.0 / (4.0 / 3.0);
        has(&mut world, &[10.0, 10.0, unit / 3.0, unit]);
        set(&mut world, &[]);
        has(&mut world, &[50.0 / 3.0, 50.0 / 3.0, 50.0 / 3.0, 50.0]);
    }
}

#[test]
fn a_groups_guarantee_is_of_what_its_servers_user_has_and_takes_nothing_from_other_users() {
    for side in SIDES {
        let owners = [key(1, 3.0, 0, 0), key(2, 1.0, 0, 5)];
        let mut world = world(side, &owners, &[class(5, 40, 0)], &config());
        has(&mut world, &[10.0, 40.0, 50.0]);
        set(&mut world, &[class(5, 90, 0)]);
        has(&mut world, &[0.0, 50.0, 50.0]);
        // No more is promised than allowed.
        set(&mut world, &[class(5, 40, 15)]);
        has(&mut world, &[35.0, 15.0, 50.0]);
    }
}

#[test]
fn whatever_a_server_says_its_user_keeps_to_his_own_limit() {
    for side in SIDES {
        let most = BTreeMap::from([(SERVER, Rate::from_mbps(30))]);
        let owners = [key(1, 1000.0, 0, 0), key(2, 1.0, 0, 5)];
        let config = HubConfig { most, ..config() };
        let mut world = world(side, &owners, &[class(5, 20, 0)], &config);
        has(&mut world, &[10.0, 20.0, 70.0]);
        set(&mut world, &[class(5, 20, 25), class(6, 90, 0)]);
        has(&mut world, &[10.0, 20.0, 70.0]);
    }
}

#[test]
fn limits_of_a_transfer_count_within_its_clients_group_and_people_see_both() {
    for side in SIDES {
        let owners = [key(1, 1.0, 0, 5), key(2, 1.0, 0, 5)];
        let mut world = world(side, &owners, &[class(5, 0, 30)], &config());
        has(&mut world, &[15.0, 15.0, 70.0]);
        let mut give = |max_rate, guarantee, expected: [f64; 3]| {
            let hub = world.hub.as_mut().unwrap();
            let all = hub.sessions_for(Right::Anybodys);
            let of = |one: &&SessionView| one.client.as_ref().is_some_and(|c| c.name == "anna");
            let anna = all.iter().find(of).unwrap();
            let client = anna.client.as_ref().unwrap();
            assert_eq!((client.groups.as_str(), client.group_max_rate), ("lab", Some(30_000_000)));
            let change = Change { of: Of::Transfer, max_rate, guarantee, ..Change::default() };
            hub.set(world.now, Right::Anybodys, anna.session, change).unwrap();
            has(&mut world, &expected);
        };
        give(Some(4_000_000), None, [4.0, 26.0, 70.0]);
        give(Some(0), Some(20_000_000), [20.0, 10.0, 70.0]);
    }
}
