//! What was acknowledged, kept where it cannot go back together with the journal: `DIR/acknowledged`.
//!
//! When a frame of `SQLite`'s write-ahead log is damaged, `SQLite` drops it and every frame after it without a word.
//! What remains is a whole journal that ends earlier, and every mark inside it has gone back with it. This file
//! remembers from outside how far the journal had come. It is synced after each commit and before a reply leaves, so
//! a journal that ends before it, or that differs at its index, has lost something that was acknowledged. A journal
//! that ends after it is in order: the process died between the commit and this file.
//!
//! The file is two slots, each in a disk block of its own, written in turn. A write that is torn by a power failure
//! leaves the other slot, which is one commit older, and that is enough. Each slot carries a checksum; the one with the
//! higher sequence number counts. The size of the file never changes, so that syncing it costs no metadata.
//!
//! ```text
//! 0     magic "WharfAck", format u32, sequence u64, term u64, next index u64, chain u32, crc u32 of all that
//! 4096  the same again
//! ```

use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Read};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use super::fault::io;
use crate::disk::{DiskFault, Standing};

const MAGIC: &[u8; 8] = b"WharfAck";
/// The format this program writes and the newest it reads.
const FORMAT: u32 = 1;
/// No disk writes less than this at a time and tears what lies beyond.
const BLOCK: usize = 4096;
const SLOTS: usize = 2;
const SLOT_LEN: usize = 44;

/// How far the journal had come when replies last left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Noted {
    pub(super) standing: Standing,
    /// Checksum of the last record.
    pub(super) chain: u32,
}

/// What a directory says of what was acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Found {
    /// There is no such file.
    Absent,
    /// There is one, and neither slot is what was written.
    Unreadable,
    /// This was acknowledged.
    Noted(Noted),
}

/// The file, for the owner of a directory.
#[derive(Debug)]
pub(super) struct Acknowledged {
    path: PathBuf,
    file: Option<File>,
    sequence: u64,
    pub(super) found: Found,
}

pub(super) fn path(dir: &Path) -> PathBuf {
    dir.join("acknowledged")
}

impl Acknowledged {
    /// Reads what the directory says. Creates nothing.
    pub(super) fn load(dir: &Path) -> Result<Self, DiskFault> {
        let path = path(dir);
        let mut bytes = Vec::new();
        match File::open(&path).and_then(|file| file.take(1 << 20).read_to_end(&mut bytes)) {
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::NotFound => {
                return Ok(Self { path, file: None, sequence: 0, found: Found::Absent });
            }
            Err(error) => return Err(io(format!("cannot read {}", path.display()), &error)),
        }
        let slots = bytes.chunks(BLOCK).take(SLOTS).filter_map(|block| decode(block.get(..SLOT_LEN)?));
        let newest = slots.max_by_key(|slot| slot.sequence);
        if let Some(newer) = newest.as_ref().filter(|slot| slot.format > FORMAT) {
            let (found, known) = (newer.format.into(), FORMAT.into());
            return Err(DiskFault::Newer { file: path.display().to_string(), found, known });
        }
        let found = newest.as_ref().map_or(Found::Unreadable, |slot| Found::Noted(slot.noted));
        Ok(Self { path, file: None, sequence: newest.map_or(0, |slot| slot.sequence), found })
    }

    /// A file that was removed under a running server is made again by the next note.
    pub(super) fn make_sure(&mut self) {
        if !self.path.exists() {
            (self.file, self.found) = (None, Found::Absent);
        }
    }

    /// Notes that everything up to here may be acknowledged. It is on the platter when this returns.
    pub(super) fn note(&mut self, noted: Noted) -> Result<(), DiskFault> {
        if self.found == Found::Noted(noted) {
            return Ok(());
        }
        let attempted = || format!("cannot write {}", self.path.display());
        self.sequence += 1;
        let slot = encode(self.sequence, noted);
        if self.file.is_none() && matches!(self.found, Found::Noted(_)) {
            let file = OpenOptions::new().write(true).open(&self.path);
            self.file = Some(file.map_err(|error| io(attempted(), &error))?);
        }
        match &self.file {
            Some(file) => {
                let at = BLOCK * usize::from(self.sequence.is_multiple_of(2));
                let at = u64::try_from(at).expect("the offset of a slot is small");
                file.write_all_at(&slot, at)
                    .and_then(|()| file.sync_data())
                    .map_err(|error| io(attempted(), &error))?;
            }
            None => self.file = Some(create(&self.path, &slot).map_err(|error| io(attempted(), &error))?),
        }
        self.found = Found::Noted(noted);
        Ok(())
    }
}

/// Makes the file whole or not at all, in place of one that cannot be read.
fn create(path: &Path, slot: &[u8; SLOT_LEN]) -> std::io::Result<File> {
    let draft = crate::look::beside(path, ".new");
    let mut bytes = vec![0; SLOTS * BLOCK];
    for block in bytes.chunks_mut(BLOCK) {
        block[..SLOT_LEN].copy_from_slice(slot);
    }
    fs::write(&draft, bytes)?;
    let file = OpenOptions::new().write(true).open(&draft)?;
    file.sync_all()?;
    fs::rename(&draft, path)?;
    // Without this the new name may not survive a power failure, though the content would.
    File::open(path.parent().unwrap_or(Path::new(".")))?.sync_all()?;
    Ok(file)
}

struct Slot {
    format: u32,
    sequence: u64,
    noted: Noted,
}

fn encode(sequence: u64, noted: Noted) -> [u8; SLOT_LEN] {
    let Noted { standing: Standing { term, next }, chain } = noted;
    let mut slot = [0; SLOT_LEN];
    slot[..8].copy_from_slice(MAGIC);
    slot[8..12].copy_from_slice(&FORMAT.to_le_bytes());
    slot[12..20].copy_from_slice(&sequence.to_le_bytes());
    slot[20..28].copy_from_slice(&term.to_le_bytes());
    slot[28..36].copy_from_slice(&next.to_le_bytes());
    slot[36..40].copy_from_slice(&chain.to_le_bytes());
    let sum = crc32fast::hash(&slot[..40]);
    slot[40..].copy_from_slice(&sum.to_le_bytes());
    slot
}

/// A slot that is what was written.
fn decode(slot: &[u8]) -> Option<Slot> {
    let long = |at: usize| Some(u64::from_le_bytes(slot.get(at..at + 8)?.try_into().ok()?));
    let short = |at: usize| Some(u32::from_le_bytes(slot.get(at..at + 4)?.try_into().ok()?));
    let whole = slot.starts_with(MAGIC) && short(40)? == crc32fast::hash(slot.get(..40)?);
    let standing = Standing { term: long(20)?, next: long(28)? };
    let noted = Noted { standing, chain: short(36)? };
    whole.then_some(Slot { format: short(8)?, sequence: long(12)?, noted })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn noted(next: u64) -> Noted {
        Noted { standing: Standing { term: 3, next }, chain: 77 }
    }

    fn used(dir: &Path) -> Vec<u8> {
        let mut file = Acknowledged::load(dir).unwrap();
        for next in [5, 6, 9] {
            file.note(noted(next)).unwrap();
        }
        fs::read(path(dir)).unwrap()
    }

    #[test]
    fn the_last_note_is_found_again() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(Acknowledged::load(dir.path()).unwrap().found, Found::Absent);
        assert_eq!(used(dir.path()).len(), SLOTS * BLOCK);
        let mut again = Acknowledged::load(dir.path()).unwrap();
        assert_eq!(again.found, Found::Noted(noted(9)));
        again.note(noted(10)).unwrap();
        assert_eq!(Acknowledged::load(dir.path()).unwrap().found, Found::Noted(noted(10)));
    }

    /// A power failure tears at most the block that was being written. The other slot is one note older.
    #[test]
    fn whatever_one_block_becomes_the_other_slot_counts() {
        let dir = tempfile::tempdir().unwrap();
        let whole = used(dir.path());
        for (block, expected) in [(0, noted(6)), (1, noted(9))] {
            for torn in [0, 0xff] {
                let mut bytes = whole.clone();
                bytes[block * BLOCK..(block + 1) * BLOCK].fill(torn);
                fs::write(path(dir.path()), bytes).unwrap();
                assert_eq!(Acknowledged::load(dir.path()).unwrap().found, Found::Noted(expected));
            }
        }
    }

    #[test]
    fn no_changed_bit_or_length_yields_a_note_that_was_never_made() {
        let dir = tempfile::tempdir().unwrap();
        let whole = used(dir.path());
        let made = [Found::Noted(noted(9)), Found::Noted(noted(6)), Found::Unreadable];
        for at in (0..SLOT_LEN).chain(BLOCK..BLOCK + SLOT_LEN) {
            let mut bytes = whole.clone();
            bytes[at] ^= 4;
            fs::write(path(dir.path()), bytes).unwrap();
            assert!(made.contains(&Acknowledged::load(dir.path()).unwrap().found), "byte {at}");
        }
        for length in [0, 1, SLOT_LEN - 1, SLOT_LEN, BLOCK, BLOCK + SLOT_LEN - 1, 2 * BLOCK - 1] {
            fs::write(path(dir.path()), &whole[..length]).unwrap();
            assert!(made.contains(&Acknowledged::load(dir.path()).unwrap().found), "{length} bytes");
        }
    }
}
