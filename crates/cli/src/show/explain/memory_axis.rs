//! The memory axis of a GPU as text: what is in each slot, and what could still be cut out of it.

use wharf_api::v1::GpuView;
use wharf_engine::device::catalogue::{self, Mig};
use wharf_engine::device::geometry::{Layout, Slice};
use wharf_engine::model::policy::Mode;

use crate::render::fact;
use crate::render::numbers::mib;
use crate::render::output::Paint;

/// The width of the whole axis; 4, 8 and 12 slots divide it.
const WIDTH: usize = 72;

/// The lines about how a GPU is divided.
pub(super) fn lines(gpu: &GpuView, paint: Paint) -> Vec<String> {
    let mut lines = vec![fact("mode", &mode(gpu), paint)];
    let Some(mig) = catalogue::mig(&gpu.model) else {
        lines.push(fact("cut", "this model cannot be cut into slices", paint));
        return lines;
    };
    let layout = layout(gpu, mig);
    let undivided = gpu.slices.is_empty() && gpu.allocated > 0.0;
    if !undivided {
        let [slots, axis] = drawn(layout, mig);
        lines.extend([fact("slots", &slots, paint), fact("", &axis, paint)]);
    }
    for (at, held) in gpu.slices.iter().enumerate() {
        let profile = mig.profile_named(&held.slice.profile).and_then(|number| mig.profile(number));
        let memory = mib(profile.map(|profile| profile.memory_mib));
        let job = held.job.as_deref().unwrap_or("?");
        let line = format!("{} at {}, {memory}: job/{job}", held.slice.profile, held.slice.start);
        lines.push(fact(if at == 0 { "slices" } else { "" }, &line, paint));
    }
    let room =
        if undivided { vec!["nothing while it is used undivided".to_owned()] } else { room(layout, mig) };
    for (at, line) in room.iter().enumerate() {
        lines.push(fact(if at == 0 { "room" } else { "" }, line, paint));
    }
    lines
}

fn mode(gpu: &GpuView) -> String {
    let trust = gpu.trust.as_ref().map_or_else(String::new, |trust| format!("; more of it only for {trust}"));
    let how = match gpu.mode {
        Mode::Whole => "whole: not divided",
        Mode::Mig => "mig: in slices, each with memory and compute of its own",
        Mode::Mps => "mps: side by side with memory limits, inside one trust domain",
        Mode::TimeSlicing => "time-slicing: by turns on the whole device",
    };
    format!("{how}{trust}")
}

fn layout(gpu: &GpuView, mig: &Mig) -> Layout {
    let known = gpu.slices.iter().filter_map(|held| {
        let slice = Slice { profile: mig.profile_named(&held.slice.profile)?, start: held.slice.start };
        (slice.start < mig.axis).then_some(slice)
    });
    known.fold(Layout::default(), Layout::with)
}

/// The numbers of the slots, and below them the slices; `·` is free.
fn drawn(layout: Layout, mig: &Mig) -> [String; 2] {
    let width = WIDTH / usize::from(mig.axis);
    let numbers: Vec<String> = (0..mig.axis).map(|slot| format!("{slot:<width$}")).collect();
    let mut axis = String::new();
    let mut slot = 0;
    while slot < mig.axis {
        let slice = layout.slices().find(|slice| slice.start == slot);
        let profile = slice.and_then(|slice| mig.profile(slice.profile));
        let (name, slots) = profile.map_or(("", 1), |profile| (profile.name, profile.slots));
        let room = usize::from(slots) * width - 1;
        let fill = if profile.is_some() { '─' } else { '·' };
        let name: String = name.chars().take(room).collect();
        axis.push('│');
        axis.push_str(&name);
        axis.extend(std::iter::repeat_n(fill, room - name.chars().count()));
        slot += slots;
    }
    axis.push('│');
    [numbers.concat().trim_end().to_owned(), axis]
}

/// What could still be cut out, a line per profile: `1g.10gb at 1, 2, 3`.
fn room(layout: Layout, mig: &Mig) -> Vec<String> {
    let starts =
        |number: u8| layout.starts_for(mig, number).map(|start| start.to_string()).collect::<Vec<_>>();
    let each = (0u8..).zip(mig.profiles).map(|(number, profile)| (profile.name, starts(number)));
    let room: Vec<String> = each
        .filter(|(_, starts)| !starts.is_empty())
        .map(|(name, starts)| format!("{name} at {}", starts.join(", ")))
        .collect();
    if room.is_empty() { vec!["nothing: no profile has a legal start left".to_owned()] } else { room }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::render::output;
    use crate::render::samples::gpu;

    #[test]
    fn a_gpu_in_slices_shows_its_axis_and_what_could_still_be_cut_out() {
        let mut told = gpu(2, None);
        told.mode = Mode::Mig;
        told.slices = [("1g.10gb", 0, Some("lab/nlp/a")), ("3g.40gb", 4, None)].map(held).to_vec();
        let expected = "  mode    mig: in slices, each with memory and compute of its own
  slots   0        1        2        3        4        5        6        7
          │1g.10gb─│········│········│········│3g.40gb────────────────────────────│
  slices  1g.10gb at 0, 9.8GiB: job/lab/nlp/a
          3g.40gb at 4, 39.5GiB: job/?
  room    1g.10gb at 1, 2, 3
          1g.10gb+me at 1, 2, 3
          1g.20gb at 2
          2g.20gb at 2
";
        assert_eq!(output::lines(&lines(&told, Paint::OFF)), expected);
    }

    fn held((profile, start, job): (&str, u8, Option<&str>)) -> wharf_api::v1::HeldSliceView {
        let slice = wharf_api::v1::SliceView { profile: profile.into(), start };
        wharf_api::v1::HeldSliceView { slice, job: job.map(str::to_owned) }
    }

    #[test]
    fn undivided_use_leaves_nothing_to_cut_and_some_models_never_can() {
        let mut told = gpu(0, None);
        (told.mode, told.trust) = (Mode::Mps, Some("lab".into()));
        let text = output::lines(&lines(&told, Paint::OFF));
        assert!(text.contains("inside one trust domain; more of it only for lab"), "{text}");
        assert!(text.contains("nothing while it is used undivided"), "{text}");
        told.model = "l40s".into();
        assert!(output::lines(&lines(&told, Paint::OFF)).contains("cannot be cut"));
    }

    #[test]
    fn every_model_has_an_axis_that_fits_a_page() {
        for mig in catalogue::MODELS.iter().filter_map(|model| model.mig) {
            let [_, axis] = drawn(Layout::default(), mig);
            assert_eq!(axis.chars().count(), WIDTH + 1, "{}", mig.row);
            let full = (0u8..).zip(mig.profiles).find(|(_, profile)| profile.slots == mig.axis).unwrap().0;
            let whole = Layout::default().with(Slice { profile: full, start: 0 });
            let [_, axis] = drawn(whole, mig);
            assert_eq!(axis.chars().count(), WIDTH + 1, "{}", mig.row);
            assert_eq!(room(whole, mig), ["nothing: no profile has a legal start left"]);
        }
    }
}
