//! Errors of devices, by XID: what each of them does to the GPU and to what runs on it.
//!
//! An error of an application fails the tasks on the GPU and costs no device. A GPU that has to be reset is reset and
//! returns by itself; one whose node has to be restarted returns with the node; the rest return when they are healed.

use wharf_engine::device::catalogue::{Recovery, Xid, xid};
use wharf_engine::model::exit::{Exit, ExitCause};
use wharf_engine::units::{Millis, Timestamp};

use super::SimFleet;

/// How long a reset takes until the GPU can be used: an assumption of ours, in the order of what operators tell of
/// draining, resetting and checking a device.
const RESET: Millis = Millis::from_secs(60);

const SIGABRT: u8 = 6;

impl SimFleet {
    /// A GPU reports an error. False when there is no such GPU.
    pub fn gpu_error(&mut self, node: &str, gpu: usize, error: &Xid) -> bool {
        let Some(known) = self.nodes.get_mut(node).and_then(|node| node.node.gpus.get_mut(gpu)) else {
            return false;
        };
        if error.recovery.costs_device() {
            (known.healthy, known.xid) = (false, Some(error.number));
            self.set_reset(node, gpu);
            self.node_changed(node);
        }
        let (exit, cause) = match error.recovery {
            Recovery::Nothing => return true,
            // The driver ends what the application asked of it, and most applications abort then.
            Recovery::Job => (Exit::Failed, ExitCause::Signal(SIGABRT)),
            Recovery::Reset | Recovery::RestartNode | Recovery::Service => {
                (Exit::Lost, ExitCause::DeviceLost)
            }
        };
        self.kill(exit, cause, |task| task.node == node && task.gpus.contains(gpu));
        true
    }

    /// A GPU can be used again. False when there is no such GPU.
    pub fn heal_gpu(&mut self, node: &str, gpu: usize) -> bool {
        let Some(known) = self.nodes.get_mut(node).and_then(|node| node.node.gpus.get_mut(gpu)) else {
            return false;
        };
        if !known.healthy {
            (known.healthy, known.xid) = (true, None);
            self.node_changed(node);
        }
        true
    }

    /// GPUs of a node that were waiting for this return.
    pub(super) fn recover_gpus(&mut self, node: &str, by: &[Recovery]) {
        let Some(known) = self.nodes.get(node) else { return };
        let gpus = known.node.gpus.iter().enumerate();
        let waits =
            gpus.filter(|(_, gpu)| gpu.xid.and_then(xid).is_some_and(|xid| by.contains(&xid.recovery)));
        for gpu in waits.map(|(at, _)| at).collect::<Vec<_>>() {
            self.heal_gpu(node, gpu);
        }
    }

    fn set_reset(&mut self, node: &str, gpu: usize) {
        self.resets.retain(|(_, name, at)| (name.as_str(), *at) != (node, gpu));
        let known = self.nodes.get(node).and_then(|node| node.node.gpus.get(gpu));
        let error = known.filter(|gpu| !gpu.healthy).and_then(|gpu| xid(gpu.xid?));
        if error.is_some_and(|error| error.recovery == Recovery::Reset) {
            self.resets.insert((self.now + RESET, node.to_owned(), gpu));
        }
    }

    /// A file does not tell when a reset that was under way is over: it takes its time once more.
    pub(super) fn resume_resets(&mut self) {
        let count = |(name, node): (&String, &super::NodeReport)| (name.clone(), node.node.gpus.len());
        for (name, gpus) in self.nodes.iter().map(count).collect::<Vec<_>>() {
            (0..gpus).for_each(|gpu| self.set_reset(&name, gpu));
        }
    }

    pub(super) fn next_reset(&self) -> Option<Timestamp> {
        self.resets.first().map(|&(at, _, _)| at)
    }

    /// The first reset is over. The GPU may have failed otherwise since.
    pub(super) fn reset_is_over(&mut self) {
        let Some((_, node, gpu)) = self.resets.pop_first() else { return };
        let error = self.nodes.get(&node).and_then(|known| known.node.gpus.get(gpu)?.xid);
        if error.and_then(xid).is_some_and(|error| error.recovery == Recovery::Reset) {
            self.heal_gpu(&node, gpu);
        }
    }
}
