//! Clients whose datagrams nobody answers, and what a server says of them on the control channel.

mod hostile;

use std::time::{Duration, Instant};

use gtp_net::client::Udp;
use gtp_net::flows::{Failure, FailureKind};
use gtp_net::messages::{
    Arrivals, ArrivalsSeen, Connected, EntryKind, Message, Opened, Reason, printable,
};
use gtp_net::stream::{Standing, WINDOW, connect};
use hostile::{Client, Liar, Raw, an_opened, file, listing};

/// Serves a client up to the point at which its first datagram is due.
async fn opened(liar: &Liar) -> Raw {
    let (mut raw, open) = liar.meet().await;
    raw.say(&Message::Opened(an_opened(&open, EntryKind::File))).await;
    raw.send(&listing(vec![file(b"x")])).await;
    raw
}

/// What becomes of a client whose datagrams nobody answers, where the server says this of them.
async fn unanswered(says: Option<Arrivals>) -> Failure {
    let mut client = Client::new();
    client.patience = Duration::from_secs(8);
    let liar = Liar::new().await;
    let answers = async {
        loop {
            let mut raw = opened(&liar).await;
            while let Some(heard) = raw.hear().await {
                if heard == Message::ArrivalsWanted
                    && let Some(arrivals) = says
                {
                    raw.say(&Message::ArrivalsSeen(ArrivalsSeen { arrivals })).await;
                }
            }
        }
    };
    tokio::select! {
        ended = client.get(liar.url("x"), &liar.identity) => ended.expect_err("nothing comes"),
        () = answers => unreachable!("it goes on without end"),
    }
}

#[tokio::test]
async fn a_server_that_gives_up_before_the_client_has_tried_proves_nothing() {
    let client = Client::new();
    let liar = Liar::new().await;
    let gives_up = async {
        loop {
            let mut raw = opened(&liar).await;
            raw.say(&Message::fault(Reason::NoUdpPath, "no datagram came")).await;
            raw.linger().await;
        }
    };
    let failure = tokio::select! {
        ended = client.get(liar.url("x"), &liar.identity) => ended.expect_err("nothing comes"),
        () = gives_up => unreachable!("it goes on without end"),
    };
    assert_eq!((failure.kind, failure.exit_code()), (FailureKind::Temporary, 5), "{failure}");
}

#[tokio::test]
async fn an_introduced_host_that_takes_connections_and_is_late_with_its_key_is_not_called_blocked()
{
    let mut client = Client::new();
    client.patience = Duration::from_secs(6);
    let late = Liar::new().await;
    let url = late.url("x");
    client.endpoint.introduce(url.host(), vec![late.address()]);
    let takes = async {
        let mut taken = Vec::new();
        loop {
            taken.push(late.listener.accept().await.unwrap());
        }
    };
    let failure = tokio::select! {
        ended = client.get(url.clone(), &late.identity) => ended.expect_err("there is no key"),
        () = takes => unreachable!("it goes on without end"),
    };
    assert_eq!((failure.kind, failure.exit_code()), (FailureKind::Temporary, 5), "{failure}");
    assert!(failure.text.contains("is slow"), "{failure}");
}

#[tokio::test]
async fn a_prompt_server_that_is_not_heard_proves_to_who_insists_on_udp_that_its_path_is_closed() {
    for says in [Arrivals::None, Arrivals::Some] {
        let begun = Instant::now();
        let failure = unanswered(Some(says)).await;
        assert_eq!((failure.kind, failure.exit_code()), (FailureKind::NoUdpPath, 11), "{failure}");
        assert!(begun.elapsed().as_secs_f64() < 6.5, "{:?}", begun.elapsed());
    }
}

#[tokio::test]
async fn a_server_that_says_it_is_slow_or_says_nothing_is_waited_for_no_longer_than_the_patience() {
    let begun = Instant::now();
    let (unread, nothing) = tokio::join!(unanswered(Some(Arrivals::Unread)), unanswered(None));
    for failure in [unread, nothing] {
        assert_eq!((failure.kind, failure.exit_code()), (FailureKind::Temporary, 5), "{failure}");
    }
    assert!(begun.elapsed().as_secs() < 20, "{:?}", begun.elapsed());
}

/// What becomes of a stream whose datagrams nobody answers, where the host says this of them: how
/// it stands in the end, why, and what the host has heard of that.
async fn unanswered_stream(says: Option<Arrivals>) -> (Standing, String, Message) {
    let (client, liar) = (Client::new(), Liar::new().await);
    let (url, terms) = (liar.url("talk"), client.terms(&liar.identity));
    let calling = async {
        let stream = connect(&client.endpoint, &url, &terms, WINDOW).await.unwrap();
        let line = stream.line().clone();
        assert!(!line.opened().await);
        (line.standing(), line.why().unwrap().to_owned())
    };
    let lying = async {
        let (mut raw, open) = liar.meet().await;
        let opened = Opened { object: None, ..an_opened(&open, EntryKind::File) };
        raw.say(&Message::Opened(opened)).await;
        let connected = Connected { down_session: 9, window: WINDOW, delivery: None };
        raw.say(&Message::Connected(connected)).await;
        loop {
            match raw.hear().await.unwrap() {
                Message::ArrivalsWanted => {
                    if let Some(arrivals) = says {
                        raw.say(&Message::ArrivalsSeen(ArrivalsSeen { arrivals })).await;
                    }
                }
                Message::Keepalive => {}
                last => return last,
            }
        }
    };
    let ((standing, why), last) = tokio::join!(calling, lying);
    (standing, why, last)
}

#[tokio::test]
async fn a_stream_blames_the_path_only_where_its_host_says_at_once_that_nothing_came() {
    let begun = Instant::now();
    let says = [Some(Arrivals::None), Some(Arrivals::Unread), Some(Arrivals::Some), None];
    let [nothing, unread, some, silent] = says.map(unanswered_stream);
    let (nothing, unread, some, silent) = tokio::join!(nothing, unread, some, silent);
    let (standing, why, Message::Fault(last)) = nothing else { panic!("{nothing:?}") };
    assert!(standing.no_path && standing.over && why.contains("no UDP path"), "{why}");
    assert_eq!(
        (last.reason, printable(last.text.to_string().as_bytes())),
        (Reason::NoUdpPath, why)
    );
    for (standing, why, last) in [unread, some, silent] {
        assert!(!standing.no_path && standing.over && why.contains("is slow"), "{why}");
        let Message::Fault(last) = last else { panic!("{last:?}") };
        assert_eq!(last.reason, Reason::TimedOut, "{why}");
    }
    assert!(begun.elapsed().as_secs_f64() < 9.0, "{:?}", begun.elapsed());
}

#[tokio::test]
async fn a_server_that_cannot_carry_data_over_tcp_is_not_asked_to_and_the_failure_says_so() {
    let mut client = Client::new();
    (client.patience, client.udp) = (Duration::from_secs(8), Udp::Auto);
    let liar = Liar::new().await;
    let older = async {
        let (mut raw, open) = liar.meet().await;
        let opened = Opened { version: 3, ..an_opened(&open, EntryKind::File) };
        raw.say(&Message::Opened(opened)).await;
        raw.send(&listing(vec![file(b"x")])).await;
        while let Some(heard) = raw.hear().await {
            assert!(!matches!(heard, Message::Carry(_)), "{heard:?}");
            if heard == Message::ArrivalsWanted {
                let seen = ArrivalsSeen { arrivals: Arrivals::None };
                raw.say(&Message::ArrivalsSeen(seen)).await;
            }
        }
        std::future::pending::<()>().await;
    };
    let failure = tokio::select! {
        ended = client.get(liar.url("x"), &liar.identity) => ended.expect_err("nothing comes"),
        () = older => unreachable!("it waits"),
    };
    assert_eq!(failure.exit_code(), 11, "{failure}");
    assert!(failure.text.contains("a newer gtp there"), "{failure}");
}
