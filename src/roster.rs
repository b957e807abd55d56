//! Who is sampled, and was: what results say of a thread beside its samples.
//!
//! Law of the room: under the GVL, like the session that owns it. A living Thread is kept by its VALUE
//! (marked); of one that is gone a copy of its name remains, and only if it has samples.

use crate::capture::control::ThreadIdentity;
use crate::drain::SHARED;

/// One thread.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Person {
    /// Number by which [`ThreadTotals`](crate::drain::ThreadTotals) name it; never used twice.
    pub serial: u64,
    /// VALUE of the Thread; 0 once it is gone.
    pub thread: u64,
    /// Kernel's id.
    pub tid: i32,
    /// It is the VM's main thread.
    pub main: bool,
    /// When it was born, or first seen (`CLOCK_MONOTONIC`), in ns.
    pub born_ns: u64,
    /// When it ended, in ns.
    pub died_ns: Option<u64>,
    /// Name of one that is gone.
    pub name: Option<String>,
}

/// All of them.
#[derive(Debug, Default)]
pub struct Roster {
    people: Vec<Person>,
    next: u64,
}

impl Roster {
    /// Enters a thread at `now` and returns its serial: the one that it has, if it is here already.
    pub fn enter(&mut self, thread: ThreadIdentity, now: u64) -> u64 {
        let known = |person: &&Person| person.thread == thread.thread && person.tid == thread.tid;
        if let Some(person) = self.people.iter().find(known) {
            return person.serial;
        }
        let serial = self.next;
        self.next += 1;
        if self.people.try_reserve(1).is_err() {
            // It stays a thread without a name.
            return serial;
        }
        self.people.push(Person {
            serial,
            thread: thread.thread,
            tid: thread.tid,
            main: thread.main,
            born_ns: now,
            died_ns: None,
            name: None,
        });
        serial
    }

    /// The thread with that VALUE ended at `now`.
    pub fn leave(&mut self, thread: u64, name: Option<String>, now: u64) {
        if let Some(person) = self
            .people
            .iter_mut()
            .find(|person| person.thread == thread)
        {
            person.thread = 0;
            person.died_ns = Some(now);
            person.name = name;
        }
    }

    /// Forgets those who are gone and have no samples, once all their records are in the tables.
    pub fn forget_unseen(&mut self, has_samples: impl Fn(u64) -> bool) {
        self.people
            .retain(|person| person.thread != 0 || has_samples(person.serial));
    }

    /// Number of entries.
    #[must_use]
    pub fn len(&self) -> usize {
        self.people.len()
    }

    /// Whether nobody is entered.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.people.is_empty()
    }

    /// The thread with that serial. An unknown one is a shared entry without a name.
    #[must_use]
    pub fn of(&self, serial: u64) -> Person {
        let found = self
            .people
            .binary_search_by_key(&serial, |person| person.serial);
        match found {
            Ok(place) => self.people[place].clone(),
            Err(_) => Person {
                serial: SHARED,
                ..Person::default()
            },
        }
    }

    /// Calls `visit` with the VALUE of each living Thread.
    pub fn each_thread(&self, visit: impl FnMut(u64)) {
        let living = self.people.iter().map(|person| person.thread);
        living.filter(|&thread| thread != 0).for_each(visit);
    }

    /// Forgets everybody.
    pub fn clear(&mut self) {
        self.people.clear();
    }
}
