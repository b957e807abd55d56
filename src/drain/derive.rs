//! From the tree to what StackProf would have counted sample by sample.
//!
//! A node's total is its own weight plus its children's. Edges and lines are sums of node totals,
//! and so are frame totals, except that recursion must not count twice: a node adds to its frame
//! only when that frame is not already above it on the path.

use hashbrown::HashMap;
use rustc_hash::FxBuildHasher;

use super::frames::FrameSet;
use super::memory::{self, NoMemory};
use super::profile::{Counts, FrameTotals};
use super::raw::StackNode;
use super::tree::{Node, ROOT};

/// Position in a frame's list of edges or lines, by frame index and callee index or line.
type Positions = HashMap<(u32, u32), usize, FxBuildHasher>;

/// Index in `frames` of every node's frame. The root has none and gets 0, which nothing reads.
pub(super) fn frame_indices(nodes: &[Node], frames: &FrameSet) -> Result<Vec<u32>, NoMemory> {
    let index = |node: &Node| frames.index_of(node.frame).unwrap_or_default();
    memory::collect(nodes.iter().map(index))
}

/// The nodes as raw needs them.
pub(super) fn stack_nodes(nodes: &[Node], indices: &[u32]) -> Result<Vec<StackNode>, NoMemory> {
    memory::collect(nodes.iter().zip(indices).map(|(node, &frame)| StackNode {
        parent: node.parent,
        frame,
        line: node.line,
    }))
}

/// The counts of every frame, in the order of `frames`.
pub(super) fn frame_totals(
    nodes: &[Node],
    indices: &[u32],
    frames: &FrameSet,
) -> Result<Vec<FrameTotals>, NoMemory> {
    let new = |&frame| FrameTotals {
        frame,
        ..FrameTotals::default()
    };
    let mut result = memory::collect(frames.as_slice().iter().map(new))?;
    let own = memory::collect(nodes.iter().map(|node| node.own))?;
    let totals = node_totals(nodes, indices, own, |frame, total| {
        let sum = &mut result[frame].total;
        *sum = sum.saturating_add(total);
    })?;
    let mut edges = Positions::default();
    let mut lines = Positions::default();
    // Node numbers follow the order of first sight, so the lists come out in it too.
    for ((node, &frame), &total) in nodes.iter().zip(indices).zip(&totals).skip(1) {
        if node.parent != ROOT {
            let caller = indices[node.parent as usize];
            let list = &mut result[caller as usize].edges;
            let position = position(&mut edges, (caller, frame), list, (frame, 0))?;
            let (_, weight) = &mut list[position];
            *weight = weight.saturating_add(total);
        }
        let counts = &mut result[frame as usize];
        counts.own = counts.own.saturating_add(node.own);
        if node.line > 0 {
            let list = &mut counts.lines;
            let key = (frame, node.line as u32);
            let position = position(&mut lines, key, list, (node.line, 0, 0))?;
            let (_, line_total, line_own) = &mut list[position];
            *line_total = line_total.saturating_add(total);
            *line_own = line_own.saturating_add(node.own);
        }
    }
    Ok(result)
}

/// Where `list` has the item of `key`; `new` is added if it has none.
fn position<T>(
    positions: &mut Positions,
    key: (u32, u32),
    list: &mut Vec<T>,
    new: T,
) -> Result<usize, NoMemory> {
    if let Some(&position) = positions.get(&key) {
        return Ok(position);
    }
    positions.try_reserve(1).map_err(|_| NoMemory)?;
    memory::push(list, new)?;
    positions.insert(key, list.len() - 1);
    Ok(list.len() - 1)
}

/// Adds a column of weights by node to the frames: own and total, by `part`.
pub(super) fn add_column(
    nodes: &[Node],
    indices: &[u32],
    column: &[u64],
    frames: &mut [FrameTotals],
    part: fn(&mut FrameTotals) -> &mut Counts,
) -> Result<(), NoMemory> {
    if column.is_empty() {
        return Ok(());
    }
    for (&own, &frame) in column.iter().zip(indices).skip(1) {
        let counts = part(&mut frames[frame as usize]);
        counts.own = counts.own.saturating_add(own);
    }
    let of = |node| column.get(node).copied().unwrap_or_default();
    let own = memory::collect((0..nodes.len()).map(of))?;
    node_totals(nodes, indices, own, |frame, total| {
        let counts = part(&mut frames[frame]);
        counts.total = counts.total.saturating_add(total);
    })?;
    Ok(())
}

/// The total of every node, out of the nodes' own weights; on the way `add` gets the totals of frames by
/// index. Depth first, without recursion: stacks may be thousands deep.
fn node_totals(
    nodes: &[Node],
    indices: &[u32],
    own: Vec<u64>,
    mut add: impl FnMut(usize, u64),
) -> Result<Vec<u64>, NoMemory> {
    let children = Children::of(nodes)?;
    let mut totals = own;
    // How many times each frame is on the path at this moment.
    let frames = indices.iter().max().map_or(0, |&index| index as usize + 1);
    let mut on_path = memory::collect((0..frames).map(|_| 0_u32))?;
    let mut node = ROOT;
    loop {
        // ROOT means «none» in the lists of children: it is nobody's child.
        let mut next = children.first[node as usize];
        while next == ROOT {
            if node == ROOT {
                return Ok(totals);
            }
            let total = totals[node as usize];
            let frame = indices[node as usize] as usize;
            on_path[frame] -= 1;
            if on_path[frame] == 0 {
                add(frame, total);
            }
            let parent = nodes[node as usize].parent;
            let above = &mut totals[parent as usize];
            *above = above.saturating_add(total);
            next = children.next[node as usize];
            node = parent;
        }
        node = next;
        on_path[indices[node as usize] as usize] += 1;
    }
}

/// Lists of children, linked by node number; [`ROOT`] ends a list.
struct Children {
    first: Vec<u32>,
    next: Vec<u32>,
}

impl Children {
    fn of(nodes: &[Node]) -> Result<Self, NoMemory> {
        let mut first = memory::collect(nodes.iter().map(|_| ROOT))?;
        let mut next = memory::collect(nodes.iter().map(|_| ROOT))?;
        for (number, node) in (0..).zip(nodes).skip(1) {
            let head = &mut first[node.parent as usize];
            next[number as usize] = *head;
            *head = number;
        }
        Ok(Self { first, next })
    }
}
