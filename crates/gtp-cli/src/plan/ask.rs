//! What the sources of a plan say of its objects, before anything moves.
//!
//! Each is asked what it has. Sources that disagree, that lack what the plan says they have, or
//! that do not let this host read it, are faults of the plan. One that does not answer is none: the
//! other sources of the object do without it, or the transfer tells that it is gone.

use std::time::Duration;

use gtp::{Failure, FailureKind, Host, RootKind, Weight};
use tokio::task::JoinSet;

use super::file::{Object, Plan, overlap};
use crate::words;

/// What was asked.
pub struct Asked {
    /// The bytes of each object.
    pub sizes: Vec<u64>,
    /// What to tell of sources that do not answer.
    pub told: Vec<Failure>,
}

/// The sizes of all objects, if the plan says them.
pub fn stated_sizes(plan: &Plan) -> Option<Vec<u64>> {
    plan.objects.iter().map(|object| object.size).collect()
}

/// Asks all sources, and takes those out of the plan that do not answer and are not needed.
///
/// # Errors
/// Every fault, each as a sentence.
pub async fn sizes(host: &Host, plan: &mut Plan, retry: Duration) -> Result<Asked, Vec<String>> {
    let answers = answers(host, plan, PATIENCE.min(retry)).await;
    let (mut sizes, mut told, mut faults): (Vec<u64>, _, _) = (Vec::new(), Vec::new(), Vec::new());
    for (number, answers) in answers.into_iter().enumerate() {
        let judged = Judged::of(&plan.objects[number], plan, &answers);
        faults.extend(judged.faults);
        told.extend(judged.told);
        let object = &plan.objects[number];
        let brought = || {
            // An object that the plan itself brings there is the one that it brings.
            let by = object.has.iter().find_map(|has| has.brought_by.map(|by| (has, by)));
            let is_all = |&(has, by): &(&super::Source, usize)| {
                let wants = &plan.objects[by].wants;
                wants.iter().any(|to| overlap(to, &has.at) && to.url.path() == has.at.url.path())
            };
            by.filter(is_all).and_then(|(_, by)| sizes.get(by).copied())
        };
        let found = judged.weight.map(|weight| weight.bytes);
        match found.or_else(brought).or(object.size) {
            Some(size) => sizes.push(size),
            None => {
                sizes.push(0);
                // A size that nobody can say is needed for no transfer that can begin.
                if object.has.iter().any(|has| has.brought_by.is_some()) {
                    faults.push(format!("[object.{}]: `size` is missing", object.name));
                }
            }
        }
        if judged.has_answered {
            let object = &mut plan.objects[number];
            let mut keep = judged.keep.into_iter();
            object.has.retain(|_| keep.next().unwrap_or(true));
        }
    }
    if faults.is_empty() { Ok(Asked { sizes, told }) } else { Err(faults) }
}

/// What a source says; `None` if the object is not there yet.
type Answer = Option<Result<Weight, Failure>>;

async fn answers(host: &Host, plan: &Plan, patience: Duration) -> Vec<Vec<Answer>> {
    let blank = |object: &Object| object.has.iter().map(|_| None).collect();
    let mut answers: Vec<Vec<Answer>> = plan.objects.iter().map(blank).collect();
    let each = plan.objects.iter().enumerate().flat_map(|(number, object)| {
        object.has.iter().enumerate().map(move |(n, has)| ((number, n), has))
    });
    let mut waiting = each.filter(|(_, has)| has.brought_by.is_none());
    let mut asking = JoinSet::new();
    loop {
        while asking.len() < AT_ONCE
            && let Some((at, has)) = waiting.next()
        {
            let (host, url, key) = (host.clone(), has.at.url.clone(), plan.hosts[has.at.host].key);
            asking.spawn(async move { (at, host.weigh(&url, key, patience).await) });
        }
        match asking.join_next().await {
            Some(Ok(((number, n), answer))) => answers[number][n] = Some(answer),
            // A task that panicked has told so; nothing is known of that source.
            Some(Err(_)) => {}
            None => return answers,
        }
    }
}

/// What the answers for one object come to.
#[derive(Default)]
struct Judged {
    weight: Option<Weight>,
    has_answered: bool,
    /// Which sources the transfers are to use.
    keep: Vec<bool>,
    told: Vec<Failure>,
    faults: Vec<String>,
}

impl Judged {
    fn of(object: &Object, plan: &Plan, answers: &[Answer]) -> Judged {
        let mut judged = Judged::default();
        let mut first = None;
        for (has, answer) in object.has.iter().zip(answers) {
            let host = plan.hosts[has.at.host].name.as_str();
            let at = format!("[object.{}] {host}", object.name);
            let (keep, fault) = match answer {
                None => (true, None),
                Some(Ok(weight)) => {
                    judged.has_answered = true;
                    let (other, said) = *first.get_or_insert((host, *weight));
                    let differs = said != *weight;
                    let words = (say(weight), say(&said));
                    (true, differs.then(|| format!("it has {}, and {other} {}", words.0, words.1)))
                }
                Some(Err(failure)) if is_gone(failure) => {
                    judged.told.push(failure.clone().about(&at));
                    (false, None)
                }
                Some(Err(failure)) => (true, Some(failure.text.clone())),
            };
            judged.keep.push(keep);
            judged.faults.extend(fault.map(|why| format!("{at}: {why}")));
        }
        judged.weight = first.map(|(_, weight)| weight);
        if let (Some(weight), Some(size)) = (judged.weight, object.size)
            && weight.bytes != size
        {
            let (name, host) = (&object.name, first.map_or("", |(host, _)| host));
            let (said, found) = (words::say_bytes(size), say(&weight));
            judged
                .faults
                .push(format!("[object.{name}] `size`: says {said}, and {host} has {found}"));
        }
        judged
    }
}

/// Whether a host does not answer: it may be back soon.
fn is_gone(failure: &Failure) -> bool {
    failure.is_temporary() || failure.kind == FailureKind::TimeLimit
}

fn say(weight: &Weight) -> String {
    match weight.kind {
        RootKind::File => format!("a file of {} bytes", weight.bytes),
        RootKind::Dir => {
            let files = words::count(weight.files, "file");
            format!("a directory of {files}, {} bytes", weight.bytes)
        }
    }
}

/// Sources that are asked at a time.
const AT_ONCE: usize = 32;

/// How long a source may be silent.
const PATIENCE: Duration = Duration::from_secs(15);
