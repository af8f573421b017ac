//! Which exports a server with several has, and who may do what in each of them; and which groups a
//! server has.
//!
//! Rights add up: those that an export gives to everybody or to groups, those of the groups that a
//! key belongs to, and the key's own. The list of keys says at most what a key may do at all. What
//! nobody has given nobody has. This module decides from values; it opens nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use gtp_store::RelPath;

use super::group_shares::{GroupShare, SHARES_AT_MOST, ShareAt};
use super::quota::{Quota, QuotaOf, Wanted};
use crate::identity::Fingerprint;
use crate::trust::{Access, AuthorizedKeys, Below, ClientTrust, Grants, Hours, is_name};

/// Exports of one server.
pub const EXPORTS_MOST: usize = 256;
/// Groups of one server.
pub const GROUPS_MOST: usize = 256;
/// Keys that one group may name in the configuration; the list of keys may name more.
pub const KEYS_OF_GROUP_MOST: usize = 1_024;

/// What a server with several exports offers, and who may do what there. Of a server with one
/// directory it says which groups there are: their shares and their hours.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Exports {
    /// By their names, which are the first component of a path.
    pub exports: BTreeMap<String, ExportRule>,
    /// By their names.
    pub groups: BTreeMap<String, GroupRule>,
}

/// One export.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExportRule {
    /// The directory or file, an absolute path.
    pub path: PathBuf,
    /// Who may list and get all of it.
    pub read: Who,
    /// Who may write in all of it.
    pub write: Who,
    /// Who may remove and move things in all of it.
    pub delete: Who,
    /// Whether it is listed for those who may use it.
    pub visibility: Visibility,
    /// How much may lie in it.
    pub quota: Quota,
}

/// Whether an export is listed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Visibility {
    /// For those who may use it.
    #[default]
    Listed,
    /// For nobody: its name must be known.
    Hidden,
}

/// Who has a right in an export.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Who {
    /// Nobody, but for groups and keys that name the export themselves.
    #[default]
    Nobody,
    /// Everybody whom the server lets in.
    Everybody,
    /// The members of these groups.
    Groups(BTreeSet<String>),
}

/// One group.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct GroupRule {
    /// Its members, beside those whose line in the list of keys names it.
    pub keys: BTreeSet<Fingerprint>,
    /// What its members may do where.
    pub grants: Grants,
    /// How much may lie where its members may write, whoever wrote it.
    pub quota: Quota,
    /// What its members have of the server's rates.
    pub share: GroupShare,
    /// What they have in some hours instead; of several that hold at once, the last counts.
    pub at: Vec<ShareAt>,
    /// When they may come.
    pub hours: Hours,
}

/// What a client may do at a path.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rights {
    /// List and get.
    pub read: bool,
    /// Write.
    pub write: bool,
    /// Remove and move away.
    pub delete: bool,
}

impl Rights {
    /// All that a key may do to whom the list gives this, where nothing is divided further.
    pub fn of(access: Access) -> Rights {
        Rights { read: access.read, write: access.write, delete: access.write }
    }

    /// The same without what is to be deleted.
    pub fn access(self) -> Access {
        Access { read: self.read, write: self.write }
    }

    /// Whether there is any.
    pub fn is_some(self) -> bool {
        self.read || self.write || self.delete
    }

    fn within(self, most: Access) -> Rights {
        Rights {
            read: self.read && most.read,
            write: self.write && most.write,
            delete: self.delete && most.write,
        }
    }
}

/// Why a description of exports cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadExports {
    /// There are too many of something.
    #[error("there are {there} {what}, and {most} at most are allowed")]
    TooMany {
        /// Of what.
        what: &'static str,
        /// How many.
        there: usize,
        /// How many may be.
        most: usize,
    },
    /// A name that no export or group may have.
    #[error(
        "`{0}` is no name: a name has 1 to 64 letters, digits, dots, - and _, and begins with no \
         dot or -"
    )]
    Name(String),
    /// The path is not absolute.
    #[error("[export.{0}] `path`: write an absolute path, as in \"/srv/{0}\"")]
    Path(String),
    /// An export names a group that is not there.
    #[error("[export.{export}] names the group `{group}`, and there is no [group.{group}]")]
    NoGroup {
        /// Which export.
        export: String,
        /// Which group.
        group: String,
    },
    /// More is guaranteed to a group than it may have.
    #[error("[group.{0}] `guarantee` is more than its `total-rate`")]
    Guarantee(String),
    /// A group has a quota where there are no exports.
    #[error(
        "[group.{0}] has a quota, which is of exports, and there is no export: take the quota out, \
         or write [export.NAME] and serve no directory beside"
    )]
    Quota(String),
    /// Exports where one directory is served.
    #[error(
        "[export.{0}] is not served: this server was started with one directory. Start it without \
         one, or take the exports out"
    )]
    BesideDirectory(String),
    /// A group names an export that is not there.
    #[error("[group.{group}] names the export `{export}`, and there is no [export.{export}]")]
    NoExport {
        /// Which group.
        group: String,
        /// Which export.
        export: String,
    },
}

impl Exports {
    /// Looks whether all fits together.
    ///
    /// # Errors
    /// [`BadExports`], the first thing that does not.
    pub fn check(&self) -> Result<(), BadExports> {
        let few = |what, there: usize, most: usize| match there <= most {
            true => Ok(()),
            false => Err(BadExports::TooMany { what, there, most }),
        };
        few("exports", self.exports.len(), EXPORTS_MOST)?;
        few("groups", self.groups.len(), GROUPS_MOST)?;
        if let Some(bad) = self.exports.keys().chain(self.groups.keys()).find(|n| !is_name(n)) {
            return Err(BadExports::Name(gtp_text::of_text(bad)));
        }
        for (export, rule) in &self.exports {
            if !rule.path.is_absolute() {
                return Err(BadExports::Path(export.clone()));
            }
            let named = [&rule.read, &rule.write, &rule.delete].into_iter().flat_map(Who::groups);
            if let Some(group) = named.into_iter().find(|name| !self.groups.contains_key(*name)) {
                let (export, group) = (export.clone(), group.clone());
                return Err(BadExports::NoGroup { export, group });
            }
        }
        for (name, group) in &self.groups {
            few("keys of one group", group.keys.len(), KEYS_OF_GROUP_MOST)?;
            few("[[group.NAME.at]] tables of one group", group.at.len(), SHARES_AT_MOST)?;
            let shares = group.at.iter().map(|at| at.over(group.share)).chain([group.share]);
            if shares.into_iter().any(|share| share.guarantee > share.total_rate) {
                return Err(BadExports::Guarantee(name.clone()));
            }
            if self.exports.is_empty() && !group.quota.is_none() {
                return Err(BadExports::Quota(name.clone()));
            }
            let missing = group.grants.all().find(|at| !self.exports.contains_key(at.export()));
            if let Some(at) = missing {
                let (group, export) = (name.clone(), at.export().to_owned());
                return Err(BadExports::NoExport { group, export });
            }
        }
        Ok(())
    }

    /// The accounts that are to be kept.
    pub(super) fn accounts(&self) -> Vec<Wanted> {
        let whole = |name: &String| name.parse::<Below>().ok();
        let of_exports = self.exports.iter().map(|(name, rule)| {
            let places = whole(name).into_iter().collect();
            self.wanted(QuotaOf::Export(name.clone()), rule.quota, places)
        });
        let of_groups = self.groups.iter().map(|(name, group)| {
            let given = |rule: &ExportRule| rule.write.groups().any(|member| member == name);
            let exports = self.exports.iter().filter(|(_, rule)| given(rule));
            let wholes = exports.filter_map(|(export, _)| whole(export));
            let places = group.grants.write.iter().cloned().chain(wholes).collect();
            self.wanted(QuotaOf::Group(name.clone()), group.quota, places)
        });
        of_exports.chain(of_groups).filter(|wanted| !wanted.quota.is_none()).collect()
    }

    fn wanted(&self, owner: QuotaOf, quota: Quota, places: Vec<Below>) -> Wanted {
        let root = |place: &Below| {
            let rule = self.exports.get(place.export())?;
            Some((place.export().to_owned(), rule.path.clone()))
        };
        let roots = places.iter().filter_map(root).collect();
        Wanted { owner, quota, places, roots }
    }

    /// The groups that a client with this key is in, with their names. One that is in a group and
    /// not on the list is in none.
    pub fn groups_of(&self, keys: &AuthorizedKeys, key: &Fingerprint) -> Vec<(&str, &GroupRule)> {
        let is_listed = keys.access(key) != Access::NONE;
        let named: BTreeSet<&str> = keys.groups(key).collect();
        let is_member = |(name, group): &(&String, &GroupRule)| {
            is_listed && (group.keys.contains(key) || named.contains(name.as_str()))
        };
        let groups = self.groups.iter().filter(is_member);
        groups.map(|(name, group)| (name.as_str(), group)).collect()
    }

    /// Where a listed key may do something, and what: exports, and the paths beneath them where it
    /// may do something else than in the whole export. In the order of their names.
    pub fn places_of(&self, keys: &AuthorizedKeys, key: &Fingerprint) -> Vec<(Below, Rights)> {
        let groups = self.groups_of(keys, key);
        let subject =
            Subject { rules: self, most: keys.access(key), groups, own: keys.grants(key) };
        let wholes = self.exports.keys().filter_map(|name| name.parse::<Below>().ok());
        let named = subject.grants().flat_map(Grants::all).cloned();
        let places: BTreeSet<Below> = wholes.chain(named).collect();
        let with_rights = |place: Below| {
            let rights = subject.rights(place.export(), place.prefix());
            let is_new = place.prefix().is_none() || rights != subject.rights(place.export(), None);
            (rights.is_some() && is_new).then_some((place, rights))
        };
        places.into_iter().filter_map(with_rights).collect()
    }

    /// The exports to which no rule gives anybody a right; keys of the list may have some.
    pub fn of_nobody(&self) -> impl Iterator<Item = &str> {
        self.exports.iter().filter_map(|(name, rule)| {
            let given = [&rule.read, &rule.write, &rule.delete].iter().any(|w| **w != Who::Nobody);
            let named = |group: &GroupRule| group.grants.all().any(|at| at.export() == name);
            (!given && !self.groups.values().any(named)).then_some(name.as_str())
        })
    }
}

impl Who {
    fn groups(&self) -> impl Iterator<Item = &String> {
        let groups = match self {
            Who::Nobody | Who::Everybody => None,
            Who::Groups(groups) => Some(groups),
        };
        groups.into_iter().flatten()
    }
}

/// A client as the rules see it.
pub(super) struct Subject<'r> {
    rules: &'r Exports,
    /// What the list of keys lets it do at all.
    most: Access,
    /// Its groups that the configuration has.
    groups: Vec<(&'r str, &'r GroupRule)>,
    own: Grants,
}

impl<'r> Subject<'r> {
    /// The client with this key. One that is in a group and not on the list is a stranger.
    pub fn of(rules: &'r Exports, trust: &ClientTrust, key: &Fingerprint) -> Subject<'r> {
        let groups = rules.groups_of(&trust.keys, key);
        Subject { rules, most: trust.access(key), groups, own: trust.keys.grants(key) }
    }

    /// Its groups that the configuration has, with their names.
    pub fn groups(&self) -> &[(&'r str, &'r GroupRule)] {
        &self.groups
    }

    /// What it may do at a path of an export; nothing where there is no such export.
    pub fn rights(&self, export: &str, path: Option<&RelPath>) -> Rights {
        let Some(rule) = self.rules.exports.get(export) else { return Rights::default() };
        let covered = |grants: &Grants| {
            let within = |all: &[Below]| all.iter().any(|at| at.covers(export, path));
            [within(&grants.read), within(&grants.write), within(&grants.delete)]
        };
        let mut has = [&rule.read, &rule.write, &rule.delete].map(|who| self.is_among(who));
        for grants in self.grants() {
            for (has, more) in has.iter_mut().zip(covered(grants)) {
                *has |= more;
            }
        }
        let [read, write, delete] = has;
        Rights { read, write, delete }.within(self.most)
    }

    /// The names directly beneath a path of an export that lead to where it may do something. Empty
    /// where it may do something already.
    pub fn ways(&self, export: &str, path: Option<&RelPath>) -> BTreeSet<&str> {
        if !self.rules.exports.contains_key(export) || self.rights(export, path).is_some() {
            return BTreeSet::new();
        }
        let may = [self.most.read, self.most.write, self.most.write];
        let lists = self
            .grants()
            .flat_map(|grants| [&grants.read, &grants.write, &grants.delete].into_iter().zip(may));
        let places = lists.filter(|(_, may)| *may).flat_map(|(places, _)| places);
        places.filter_map(|at| at.way(export, path)).collect()
    }

    /// The exports that are listed for it.
    pub fn listed(&self) -> impl Iterator<Item = &'r str> {
        let shown = self.rules.exports.iter().filter(|(_, r)| r.visibility == Visibility::Listed);
        let shown = shown.map(|(name, _)| name.as_str());
        shown.filter(|name| self.sees(name, None))
    }

    /// Whether it may do something there, or beneath it.
    pub fn sees(&self, export: &str, path: Option<&RelPath>) -> bool {
        self.rights(export, path).is_some() || !self.ways(export, path).is_empty()
    }

    fn grants(&self) -> impl Iterator<Item = &Grants> {
        self.groups.iter().map(|(_, group)| &group.grants).chain([&self.own])
    }

    fn is_among(&self, who: &Who) -> bool {
        match who {
            Who::Nobody => false,
            Who::Everybody => true,
            Who::Groups(names) => self.groups.iter().any(|(name, _)| names.contains(*name)),
        }
    }
}

#[cfg(test)]
mod tests {
    use gtp_alloc::Rate;

    use super::*;
    use crate::trust::Strangers;

    fn key(n: u8) -> Fingerprint {
        Fingerprint::of_public_key(&[n])
    }

    fn path(text: &str) -> Option<RelPath> {
        (!text.is_empty()).then(|| RelPath::new(text).unwrap())
    }

    fn export(read: Who, write: Who, delete: Who) -> ExportRule {
        let (visibility, quota) = (Visibility::Listed, Quota::default());
        ExportRule { path: "/srv".into(), read, write, delete, visibility, quota }
    }

    fn of_group(name: &str) -> Who {
        Who::Groups([name.to_owned()].into())
    }

    fn places(all: &[&str]) -> Vec<Below> {
        all.iter().map(|at| at.parse().unwrap()).collect()
    }

    /// `pub` for all, `lab` for the group staff, `home` for whoever names a part of it, and `drop`
    /// that is not listed.
    fn rules() -> Exports {
        let staff = GroupRule {
            keys: [key(1)].into(),
            grants: Grants {
                read: places(&["home/staff"]),
                write: places(&["home/staff/in"]),
                delete: Vec::new(),
            },
            quota: Quota { bytes: Some(7), files: None },
            share: GroupShare::default(),
            ..GroupRule::default()
        };
        let hidden = ExportRule {
            visibility: Visibility::Hidden,
            ..export(Who::Nobody, Who::Everybody, Who::Nobody)
        };
        let exports = [
            ("pub", export(Who::Everybody, Who::Nobody, Who::Nobody)),
            ("lab", export(of_group("staff"), of_group("staff"), of_group("staff"))),
            ("home", export(Who::Nobody, Who::Nobody, Who::Nobody)),
            ("drop", hidden),
        ];
        Exports {
            exports: exports.map(|(name, rule)| (name.to_owned(), rule)).into(),
            groups: [("staff".to_owned(), staff)].into(),
        }
    }

    /// The keys 1 to 4; 2 is of the staff by its line, 3 only reads, 4 has a place of its own.
    fn trust(strangers: Strangers) -> ClientTrust {
        let dir = tempfile::tempdir().unwrap();
        let text = format!(
            "{}\n{} group=staff\n{} read group=staff\n{} read=home/d/e write=home/d/f\n",
            key(1),
            key(2),
            key(3),
            key(4)
        );
        std::fs::write(dir.path().join("keys"), text).unwrap();
        let keys = AuthorizedKeys::load(&dir.path().join("keys")).unwrap();
        ClientTrust { keys, strangers }
    }

    #[test]
    fn the_places_of_a_key_are_exports_and_the_paths_where_it_may_do_something_else() {
        let of = |who: u8| {
            let places = rules().places_of(&trust(Strangers::Refused).keys, &key(who));
            let words = |(place, Rights { read, write, delete }): (Below, Rights)| {
                let sign = |has, sign| if has { sign } else { '-' };
                let rights: String = [(read, 'r'), (write, 'w'), (delete, 'd')]
                    .map(|(has, letter)| sign(has, letter))
                    .into_iter()
                    .collect();
                format!("{place} {rights}")
            };
            places.into_iter().map(words).collect::<Vec<_>>()
        };
        let staff = ["drop -w-", "home/staff r--", "home/staff/in rw-", "lab rwd", "pub r--"];
        assert_eq!(of(1), staff);
        assert_eq!(of(2), staff);
        assert_eq!(of(3), ["home/staff r--", "home/staff/in r--", "lab r--", "pub r--"]);
        assert_eq!(of(4), ["drop -w-", "home/d/e r--", "home/d/f -w-", "pub r--"]);
        assert_eq!(of(5), Vec::<String>::new(), "not on the list");
    }

    fn rights(who: u8, export: &str, at: &str) -> [bool; 3] {
        let (rules, trust) = (rules(), trust(Strangers::Refused));
        let Rights { read, write, delete } =
            Subject::of(&rules, &trust, &key(who)).rights(export, path(at).as_ref());
        [read, write, delete]
    }

    #[test]
    fn rights_of_the_export_of_the_groups_and_of_the_key_add_up_below_what_the_list_allows() {
        for member in [1, 2] {
            assert_eq!(rights(member, "lab", ""), [true; 3]);
            assert_eq!(rights(member, "home", "staff/x"), [true, false, false]);
            assert_eq!(rights(member, "home", "staff/in/x"), [true, true, false]);
        }
        assert_eq!(rights(3, "lab", ""), [true, false, false], "its line says read");
        assert_eq!(rights(3, "drop", ""), [false; 3]);
        assert_eq!(rights(4, "lab", ""), [false; 3]);
        assert_eq!(rights(4, "home", "d/e"), [true, false, false]);
        assert_eq!(rights(4, "home", "d/f/g"), [false, true, false]);
        assert_eq!((rights(4, "home", "d"), rights(4, "home", "")), ([false; 3], [false; 3]));
        assert_eq!(rights(4, "pub", "x"), [true, false, false]);
        assert_eq!(rights(1, "none", ""), [false; 3]);
    }

    #[test]
    fn a_group_has_an_account_of_all_places_where_its_members_may_write_and_an_export_of_itself() {
        let mut rules = rules();
        rules.exports.get_mut("pub").unwrap().quota.files = Some(3);
        let accounts = rules.accounts();
        let said: Vec<_> = accounts.iter().map(|a| (a.owner.to_string(), &*a.places)).collect();
        let (whole, staff) = (places(&["pub"]), places(&["home/staff/in", "lab"]));
        let expected =
            [("the export pub".to_owned(), &*whole), ("the group staff".into(), &*staff)];
        assert_eq!(said, expected);
    }

    #[test]
    fn a_stranger_reads_what_everybody_reads_and_only_if_the_server_is_public() {
        let rules = rules();
        for (strangers, reads) in [(Strangers::MayRead, true), (Strangers::Refused, false)] {
            let trust = trust(strangers);
            let stranger = Subject::of(&rules, &trust, &key(9));
            assert_eq!(stranger.rights("pub", None).read, reads);
            assert!(!stranger.rights("drop", None).is_some() && !stranger.sees("lab", None));
            assert_eq!(stranger.listed().next().is_some(), reads);
        }
    }

    #[test]
    fn a_key_of_a_group_that_the_list_does_not_have_is_a_stranger() {
        let rules = rules();
        let nobody = ClientTrust { keys: AuthorizedKeys::default(), strangers: Strangers::MayRead };
        assert!(!Subject::of(&rules, &nobody, &key(1)).sees("lab", None));
    }

    #[test]
    fn exports_are_listed_for_those_who_may_use_them_or_a_part_and_hidden_ones_for_nobody() {
        let (rules, trust) = (rules(), trust(Strangers::Refused));
        let listed = |n| Subject::of(&rules, &trust, &key(n)).listed().collect::<Vec<_>>();
        assert_eq!(listed(1), ["home", "lab", "pub"]);
        assert_eq!(listed(4), ["home", "pub"]);
        let hidden = Subject::of(&rules, &trust, &key(1));
        assert!(hidden.rights("drop", None).write && hidden.sees("drop", None));
    }

    #[test]
    fn above_its_places_a_client_sees_the_ways_there_and_nothing_beside_them() {
        let (rules, trust) = (rules(), trust(Strangers::Refused));
        let subject = Subject::of(&rules, &trust, &key(4));
        let ways =
            |at: &str| subject.ways("home", path(at).as_ref()).into_iter().collect::<Vec<_>>();
        assert_eq!((ways(""), ways("d")), (vec!["d"], vec!["e", "f"]));
        assert!(ways("d/e").is_empty() && ways("other").is_empty());
        let reader = Subject::of(&rules, &trust, &key(3));
        assert_eq!(reader.ways("home", None).into_iter().collect::<Vec<_>>(), ["staff"]);
    }

    #[test]
    fn names_that_lead_nowhere_and_too_many_of_them_are_refused() {
        assert_eq!(rules().check(), Ok(()));
        let mut bad = rules();
        bad.exports.get_mut("pub").unwrap().read = of_group("none");
        assert!(matches!(bad.check(), Err(BadExports::NoGroup { .. })));
        let mut bad = rules();
        bad.groups.get_mut("staff").unwrap().grants.delete = places(&["none/x"]);
        assert!(matches!(bad.check(), Err(BadExports::NoExport { .. })));
        let mut bad = rules();
        let share = &mut bad.groups.get_mut("staff").unwrap().share;
        (share.total_rate, share.guarantee) = (Rate::from_mbps(5), Rate::from_mbps(6));
        assert_eq!(bad.check(), Err(BadExports::Guarantee("staff".into())));
        let mut bad = rules();
        bad.exports.get_mut("pub").unwrap().path = "srv".into();
        assert!(matches!(bad.check(), Err(BadExports::Path(_))));
        let mut bad = rules();
        let rule = bad.exports["pub"].clone();
        bad.exports.insert("a/b".into(), rule.clone());
        assert!(matches!(bad.check(), Err(BadExports::Name(_))));
        let mut many = rules();
        many.exports.extend((0..EXPORTS_MOST).map(|n| (n.to_string(), rule.clone())));
        assert!(matches!(many.check(), Err(BadExports::TooMany { there: 260, .. })));
        assert_eq!(rules().of_nobody().collect::<Vec<_>>(), Vec::<&str>::new());
        let mut lonely = rules();
        lonely.groups.get_mut("staff").unwrap().grants = Grants::default();
        assert_eq!(lonely.of_nobody().collect::<Vec<_>>(), ["home"]);
    }
}
