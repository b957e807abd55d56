//! The calling-context tree: one node per distinct path of frames and lines from the root.
//!
//! Nodes lie in one array and know their parent; children are found by a hash table of node
//! numbers over that array (4 bytes an entry), keyed by parent, frame and line. The path of the
//! last stack is kept, so that the part a stack shares with the one before it, at the root side,
//! costs one compare a frame and no hash.
//!
//! Where the tables may not grow any more, the frames of a new stack that have no nodes are folded into the node that called
//! them: they stay in the path, which later records keep frames of, and count as their caller's own.

use std::hash::BuildHasher;

use hashbrown::HashTable;
use rustc_hash::FxBuildHasher;
use static_assertions::assert_eq_size;

use super::frames::FrameSet;
use super::{columns, memory, Corrupt};
use crate::sample::FrameLine;

/// Number of the node above all stacks; it has no frame and is its own parent.
pub(super) const ROOT: u32 = 0;

/// One calling context.
#[derive(Clone, Copy, Debug)]
pub(super) struct Node {
    /// Frame at the end of the path.
    pub(super) frame: u64,
    /// Sum of the weights of the records that ended here.
    pub(super) own: u64,
    /// Number of the calling node.
    pub(super) parent: u32,
    /// Current line of the frame.
    pub(super) line: i32,
}

assert_eq_size!(Node, [u64; 3]);

/// One frame of the last path, with its node.
#[derive(Clone, Copy, Debug)]
struct Step {
    frame: u64,
    line: i32,
    node: u32,
}

assert_eq_size!(Step, [u64; 2]);

/// Where a stack is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) node: u32,
    /// Frames below that node were folded into it.
    pub(super) folded: bool,
}

/// The tree, and the path that was walked last.
#[derive(Debug)]
pub(super) struct Tree {
    nodes: Vec<Node>,
    /// Numbers of all nodes but the root, by parent, frame and line.
    children: HashTable<u32>,
    /// A chain of nodes from below the root, the last stack or one that continues it.
    path: Vec<Step>,
    /// How many steps of the path have nodes of their own; the rest is folded into the last of them.
    placed: usize,
}

impl Tree {
    /// The root alone.
    pub(super) fn new() -> Self {
        let root = Node {
            frame: 0,
            own: 0,
            parent: ROOT,
            line: 0,
        };
        Self {
            nodes: vec![root],
            children: HashTable::new(),
            path: Vec::new(),
            placed: 0,
        }
    }

    /// Memory for so many nodes at once, where there is that much: a table that doubles takes as long as it is large, under
    /// the GVL. What is not touched is not resident.
    pub(super) fn make_room_ahead(&mut self, nodes: usize) {
        // Without it the tree grows as it needs to.
        let _ = memory::reserve(&mut self.nodes, nodes);
        let _ = self.children.try_reserve(nodes, |_| 0);
    }

    /// The place of a stack whose root side is the first `kept` frames of the last one, and whose leaf side is given leaf
    /// first (I15); missing nodes and their frames are added, where that takes no more than `room` bytes more. A whole stack keeps
    /// none.
    pub(super) fn descend(
        &mut self,
        kept: usize,
        leaf_first: &[FrameLine],
        frames: &mut FrameSet,
        room: usize,
    ) -> Result<Place, Corrupt> {
        if kept > self.path.len() {
            return Err(Corrupt::NothingToRepeat);
        }
        let depth = kept + leaf_first.len();
        let shared = kept + self.shared_from(kept, leaf_first);
        if shared == depth {
            // The path may go on below this stack; it stays, for the stack that comes back to it.
            return Ok(Place {
                node: shared.checked_sub(1).map_or(ROOT, |i| self.path[i].node),
                folded: shared > self.placed,
            });
        }
        self.path.truncate(shared);
        self.placed = self.placed.min(shared);
        memory::reserve(&mut self.path, depth - shared)?;
        let mut parent = self.path.last().map_or(ROOT, |step| step.node);
        let mut rest = &leaf_first[..depth - shared];
        if self.placed < shared {
            return Ok(self.fold(parent, rest));
        }
        while let Some((&frame, leafward)) = rest.split_last() {
            let Some(node) = self.child(parent, frame) else {
                return if self.growth(rest.len(), frames) > room {
                    Ok(self.fold(parent, rest))
                } else {
                    self.grow(parent, rest, frames)
                };
            };
            self.step(frame, node);
            self.placed += 1;
            parent = node;
            rest = leafward;
        }
        Ok(Place {
            node: parent,
            folded: false,
        })
    }

    /// The child of `parent` for `frame`, added if it is missing, whatever bound there is. Leaves the path alone.
    pub(super) fn child_or_new(
        &mut self,
        parent: u32,
        frame: FrameLine,
        frames: &mut FrameSet,
    ) -> Result<u32, Corrupt> {
        if let Some(node) = self.child(parent, frame) {
            return Ok(node);
        }
        let node = self.numbers(1)?;
        self.make_room(1, frames)?;
        self.add(node, parent, frame, frames);
        Ok(node)
    }

    /// Adds `weight` to a node that this tree returned.
    pub(super) fn credit(&mut self, node: u32, weight: u64) {
        let own = &mut self.nodes[node as usize].own;
        *own = own.saturating_add(weight);
    }

    /// Number of nodes, without the root.
    pub(super) fn len(&self) -> usize {
        self.nodes.len() - 1
    }

    /// Memory held, in bytes.
    pub(super) fn bytes(&self) -> usize {
        self.bytes_of_nodes() + self.path.capacity() * size_of::<Step>()
    }

    /// The part of it that grows with the number of stacks.
    pub(super) fn bytes_of_nodes(&self) -> usize {
        self.nodes.capacity() * size_of::<Node>() + self.children.allocation_size()
    }

    /// Number of nodes, the root included, that there is memory for.
    pub(super) fn capacity(&self) -> usize {
        self.nodes.capacity()
    }

    /// By how many bytes `count` more nodes, with their frames and their weights in every column, would make the tables grow,
    /// at most.
    fn growth(&self, count: usize, frames: &FrameSet) -> usize {
        let nodes = memory::growth(&self.nodes, count);
        nodes / size_of::<Node>() * (size_of::<Node>() + columns::BYTES_A_NODE)
            + memory::table_growth(&self.children, count)
            + frames.growth(count)
    }

    /// All nodes, the root first; within what one record added, leaf first.
    pub(super) fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// How many frames the path from `kept` on has in common with a leaf side.
    fn shared_from(&self, kept: usize, leaf_first: &[FrameLine]) -> usize {
        self.path[kept..]
            .iter()
            .zip(leaf_first.iter().rev())
            .take_while(|(step, frame)| step.frame == frame.frame && step.line == frame.line)
            .count()
    }

    fn child(&self, parent: u32, frame: FrameLine) -> Option<u32> {
        let same = |&i: &u32| {
            let node = &self.nodes[i as usize];
            node.parent == parent && node.frame == frame.frame && node.line == frame.line
        };
        let found = self.children.find(hash(parent, frame), same);
        found.copied()
    }

    /// Continues the path by frames that have no nodes.
    fn fold(&mut self, caller: u32, leaf_first: &[FrameLine]) -> Place {
        for &frame in leaf_first.iter().rev() {
            self.step(frame, caller);
        }
        Place {
            node: caller,
            folded: true,
        }
    }

    /// Adds a whole branch of new nodes under `parent` and returns its leaf. Numbers go up from the
    /// leaf, and so does the order of first sight: the order in which StackProf meets frames,
    /// edges and lines within a sample.
    fn grow(
        &mut self,
        parent: u32,
        leaf_first: &[FrameLine],
        frames: &mut FrameSet,
    ) -> Result<Place, Corrupt> {
        let leaf = self.numbers(leaf_first.len())?;
        let mut node = leaf;
        let (&top, below) = leaf_first.split_last().ok_or(Corrupt::Length)?;
        // A branch half added would hang on nodes that are not there: memory for all of it, or none.
        self.make_room(leaf_first.len(), frames)?;
        for &frame in below {
            self.add(node, node + 1, frame, frames);
            node += 1;
        }
        self.add(node, parent, top, frames);
        for (offset, &frame) in leaf_first.iter().enumerate().rev() {
            self.step(frame, leaf + offset as u32);
        }
        self.placed += leaf_first.len();
        Ok(Place {
            node: leaf,
            folded: false,
        })
    }

    /// The first of `count` consecutive free node numbers.
    fn numbers(&self, count: usize) -> Result<u32, Corrupt> {
        match u32::try_from(self.nodes.len() + count) {
            Ok(end) => Ok(end - count as u32),
            Err(_) => Err(Corrupt::TreeFull),
        }
    }

    /// Memory for `count` more nodes and their frames, so that adding them cannot fail.
    fn make_room(&mut self, count: usize, frames: &mut FrameSet) -> Result<(), Corrupt> {
        frames.make_room(count)?;
        memory::reserve(&mut self.nodes, count)?;
        let nodes = &self.nodes;
        let hashed = self
            .children
            .try_reserve(count, |&i| hash_of(&nodes[i as usize]));
        hashed.map_err(|_| Corrupt::NoMemory)
    }

    fn add(&mut self, number: u32, parent: u32, frame: FrameLine, frames: &mut FrameSet) {
        frames.add(frame.frame);
        self.nodes.push(Node {
            frame: frame.frame,
            own: 0,
            parent,
            line: frame.line,
        });
        let nodes = &self.nodes;
        self.children
            .insert_unique(hash(parent, frame), number, |&i| {
                hash_of(&nodes[i as usize])
            });
    }

    fn step(&mut self, frame: FrameLine, node: u32) {
        self.path.push(Step {
            frame: frame.frame,
            line: frame.line,
            node,
        });
    }
}

fn hash_of(node: &Node) -> u64 {
    hash(node.parent, FrameLine::new(node.frame, node.line))
}

fn hash(parent: u32, frame: FrameLine) -> u64 {
    let place = u64::from(parent) << 32 | u64::from(frame.line as u32);
    FxBuildHasher.hash_one((place, frame.frame))
}
