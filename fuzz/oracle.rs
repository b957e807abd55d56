//! A naive reader of records, written from their description alone: every frame of every record is
//! walked, nothing is shared or derived.

use std::collections::{BTreeMap, BTreeSet};

/// Frames and lines, leaf first.
pub type Stack = Vec<(u64, i32)>;
/// Weight by callee.
pub type Edges = BTreeMap<u64, u64>;
/// Total and own weight by line.
pub type Lines = BTreeMap<i32, (u64, u64)>;

#[derive(Default)]
pub struct Frame {
    pub total: u64,
    pub own: u64,
    pub edges: Edges,
    pub lines: Lines,
}

#[derive(Clone)]
struct Last {
    stack: Stack,
    truncated: bool,
    of_a_thread: bool,
}

#[derive(Default)]
pub struct Oracle {
    pub samples: u64,
    pub gc_samples: u64,
    pub truncated: u64,
    /// Weight of stacks without frames.
    pub frameless: u64,
    pub frames: BTreeMap<u64, Frame>,
    pub runs: Vec<(Stack, u64)>,
    /// By running, waiting, blocked.
    pub states: [u64; 3],
    /// Weight by the CPU clock.
    pub cpu: u64,
    /// Frames of stacks that started collections.
    causes: BTreeSet<u64>,
    last: Option<Last>,
    /// Each thread's last stack.
    lasts: BTreeMap<u64, Last>,
}

/// Slots that have a thread.
pub const SLOTS: u64 = 8;

impl Oracle {
    /// Counts a record; false, with nothing counted, if no producer writes such words.
    pub fn insert(&mut self, words: &[u64]) -> bool {
        let taken = self.read(words).is_some();
        if !taken {
            self.forget();
        }
        taken
    }

    fn read(&mut self, words: &[u64]) -> Option<()> {
        let header = words[0];
        let (kind, weight, slot) = (header & 7, header >> 40, header >> 24 & 0xFFFF);
        let state = header >> 6 & 3;
        let has_cpu = header >> 21 & 1 == 1;
        // Header, time, and the weight by the CPU clock where there is one.
        let fixed = 2 + usize::from(has_cpu);
        let numbered = matches!(kind, 4 | 6) || (kind == 3 && words.len() == fixed + 1);
        let frames = fixed + usize::from(numbered);
        let fits = match kind {
            1 | 4 | 6 => (frames..=4100).contains(&words.len()),
            2 | 3 | 5 => words.len() == frames,
            _ => false,
        };
        if !fits {
            return None;
        }
        let cpu = if has_cpu {
            words[frames - 1].min(u64::from(u32::MAX))
        } else {
            0
        };
        match kind {
            1 | 6 => {
                let mut stack = decode(&words[frames..])?;
                if kind == 6 {
                    let before = &self.last.as_ref()?.stack;
                    let kept = usize::try_from(words[2]).ok()?;
                    stack.extend_from_slice(&before[before.len().checked_sub(kept)?..]);
                    if stack.len() > 2048 {
                        return None;
                    }
                }
                let last = Last {
                    stack,
                    truncated: header >> 5 & 1 == 1,
                    of_a_thread: slot != 0xFFFF,
                };
                self.last = Some(last.clone());
                if slot < SLOTS {
                    self.lasts.insert(slot, last.clone());
                }
                self.count_last(&last, weight);
            }
            2 => {
                let last = self.last.clone()?;
                self.count_last(&last, weight);
            }
            4 => {
                for (frame, _) in decode(&words[frames..])? {
                    self.causes.insert(frame);
                }
                return Some(());
            }
            5 => {
                let last = self.lasts.get(&slot).cloned();
                let last = last.filter(|last| !last.stack.is_empty())?;
                self.count_last(&last, weight);
            }
            _ => {
                self.gc_samples += weight;
                self.cpu += cpu;
                let phase = match header >> 3 & 3 {
                    1 => vec![(3, 0)],
                    2 => vec![(5, 0)],
                    _ => vec![],
                };
                self.count(&[phase, vec![(1, 0)]].concat(), weight);
                return Some(());
            }
        }
        self.cpu += cpu;
        // There is no fourth state.
        self.states[state as usize % 3] += weight;
        Some(())
    }

    /// Adds weight to the last stack; false if there is none that time could be credited to.
    pub fn credit(&mut self, weight: u64) -> bool {
        let last = self.last.clone();
        match last {
            Some(last) if last.of_a_thread && weight < 1 << 32 => {
                self.count_last(&last, weight);
                self.states[0] += weight;
                true
            }
            _ => false,
        }
    }

    pub fn forget(&mut self) {
        self.last = None;
        self.lasts.clear();
    }

    /// Frames that are the VM's, not our own fakes.
    pub fn real_frames(&self) -> BTreeSet<u64> {
        self.frames
            .keys()
            .chain(&self.causes)
            .copied()
            .filter(|frame| frame % 2 == 0)
            .collect()
    }

    fn count_last(&mut self, last: &Last, weight: u64) {
        self.truncated += if last.truncated { weight } else { 0 };
        self.count(&last.stack, weight);
    }

    fn count(&mut self, stack: &[(u64, i32)], weight: u64) {
        self.samples += weight;
        if stack.is_empty() {
            self.frameless += weight;
            return;
        }
        let mut seen = BTreeSet::new();
        let mut callee = None;
        for (depth, &(frame, line)) in stack.iter().enumerate() {
            let own = if depth == 0 { weight } else { 0 };
            let counts = self.frames.entry(frame).or_default();
            counts.own += own;
            counts.total += if seen.insert(frame) { weight } else { 0 };
            if let Some(callee) = callee.replace(frame) {
                *counts.edges.entry(callee).or_default() += weight;
            }
            if line > 0 {
                let (total_here, own_here) = counts.lines.entry(line).or_default();
                *total_here += weight;
                *own_here += own;
            }
        }
        match self.runs.last_mut() {
            _ if weight == 0 => {}
            Some((same, total)) if same == stack => *total += weight,
            _ => self.runs.push((stack.to_vec(), weight)),
        }
    }
}

/// The frames of a stack record; `None` if the last one is cut, or if there are more than 2,048.
fn decode(mut words: &[u64]) -> Option<Stack> {
    let mut stack = Stack::new();
    while let Some((&word, rest)) = words.split_first() {
        words = rest;
        let (mut frame, mut line) = (word & 0xFFFF_FFFF_FFFF, (word >> 48) as i32);
        if line == 0xFFFF {
            let (&wide, rest) = words.split_first()?;
            words = rest;
            frame |= (wide >> 32 & 0xFFFF) << 48;
            line = wide as i32;
        }
        stack.push((frame, line));
    }
    (stack.len() <= 2048).then_some(stack)
}
