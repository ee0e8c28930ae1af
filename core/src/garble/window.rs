//! Both sides' way through the tiles of a run: whole tiles on all threads, parts of one as tables
//! allow.

use std::sync::Arc;

use zeroize::Zeroizing;

use super::block::Block;
use super::circuit::{Circuit, Refused};
use super::operands::GATE;
use super::tile::{self, Plan, Side, Walk, tile_bytes};

/// Tables that are taken from the front, to be written or to be read.
pub trait Tables: Send + Sized {
    fn bytes(&self) -> usize;
    fn cut(self, at: usize) -> (Self, Self);
}

impl Tables for &[u8] {
    fn bytes(&self) -> usize {
        self.len()
    }

    fn cut(self, at: usize) -> (Self, Self) {
        self.split_at(at)
    }
}

impl Tables for &mut [u8] {
    fn bytes(&self) -> usize {
        self.len()
    }

    fn cut(self, at: usize) -> (Self, Self) {
        self.split_at_mut(at)
    }
}

/// State of a run, and the labels of its outputs, which are overwritten when dropped.
pub struct Window {
    pub circuit: Arc<Circuit>,
    pub plan: Plan,
    /// Labels of the outputs, tile by tile.
    outputs: Zeroizing<Vec<Block>>,
    tile: usize,
    /// The tile that is under way, if any.
    walk: Option<Walk>,
    spare: Vec<Walk>,
}

impl Window {
    pub fn new(circuit: Arc<Circuit>, plan: Plan) -> Result<Self, Refused> {
        plan.check_labels(&circuit)?;
        let mut outputs = tile::room(circuit.outputs * plan.instances)?;
        outputs.resize(circuit.outputs * plan.instances, 0);
        Ok(Self {
            outputs,
            tile: 0,
            walk: None,
            spare: Vec::new(),
            circuit,
            plan,
        })
    }

    pub fn done(&self) -> bool {
        self.tile == self.plan.tiles()
    }

    /// Tells whether a tile has been begun.
    pub fn under_way(&self) -> bool {
        self.walk.is_some()
    }

    /// Returns the bytes of tables of the tile that is next or under way.
    pub fn tile_bytes(&self) -> usize {
        tile_bytes(&self.plan, &self.circuit, self.tile)
    }

    /// Returns the bytes of tables of one of its gates.
    pub fn gate_bytes(&self) -> usize {
        GATE * self.plan.lanes(self.tile)
    }

    /// Processes the tiles that `tables` hold, on all threads, and returns the rest.
    ///
    /// `offsets` writes the offsets of a tile from its first instance on; `side` acts on tables.
    pub fn whole_tiles<T: Tables, S: Side<Tables = T>>(
        &mut self,
        mut tables: T,
        offsets: impl Fn(&Plan, usize, &mut [Block]) + Sync,
        side: impl Fn(T) -> S + Sync,
    ) -> T {
        let (circuit, plan) = (&*self.circuit, &self.plan);
        let mut outputs = &mut self.outputs[self.tile * plan.tile * circuit.outputs..];
        let mut jobs = Vec::new();
        let mut next = self.tile;
        while next < plan.tiles() && tile_bytes(plan, circuit, next) <= tables.bytes() {
            let (mine, rest) = tables.cut(tile_bytes(plan, circuit, next));
            tables = rest;
            let stored = outputs
                .split_off_mut(..circuit.outputs * plan.lanes(next))
                .unwrap_or_default();
            jobs.push((next, mine, stored));
            next += 1;
        }
        tile::on_threads(
            plan.threads,
            &mut self.spare,
            jobs,
            |walk, (tile, tables, stored)| {
                walk.start(plan, circuit, tile, |to| {
                    offsets(plan, tile * plan.tile, to);
                });
                walk.go(plan, circuit, tile, &mut side(tables), stored);
            },
        );
        self.tile = next;
        tables
    }

    /// Continues the tile that is under way, or begins one; returns the rest.
    pub fn part_of_tile<T: Tables, S: Side<Tables = T>>(
        &mut self,
        tables: T,
        offsets: impl Fn(&Plan, usize, &mut [Block]),
        side: impl Fn(T) -> S,
    ) -> T {
        let (circuit, plan, tile) = (&*self.circuit, &self.plan, self.tile);
        let mut walk = self.walk.take().unwrap_or_else(|| {
            let mut walk = self.spare.pop().unwrap_or_default();
            walk.start(plan, circuit, tile, |to| {
                offsets(plan, tile * plan.tile, to);
            });
            walk
        });
        let before = tile * plan.tile * circuit.outputs;
        let stored = &mut self.outputs[before..before + circuit.outputs * plan.lanes(tile)];
        let mut side = side(tables);
        if walk.go(plan, circuit, tile, &mut side, stored) {
            self.spare.push(walk);
            self.tile += 1;
        } else {
            self.walk = Some(walk);
        }
        side.rest()
    }

    /// Returns the labels of an output, of every instance.
    pub fn output(&self, output: usize) -> Zeroizing<Vec<Block>> {
        Zeroizing::new(tile::output(
            &self.plan,
            &self.circuit,
            &self.outputs,
            output,
        ))
    }
}
