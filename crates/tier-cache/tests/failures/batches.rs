//! What the claimer is told, and when it may be told more.

use tier_cache::{AckError, Boundary, Edit, View};

use crate::scene::{Scene, expert, three_tiers, two_tiers};

/// Long prompts ended in an illegal memory access: the pinned buffers with the table's updates were rewritten for the next
/// step while the copy of the last one was still reading them.
///
/// Here a batch stands until it is acknowledged. Meanwhile there is no other, whatever changes, and no acknowledgement of
/// anything else is taken for its own.
#[test]
fn a_batch_is_not_rewritten_before_it_is_acknowledged() {
    let mut scene = Scene::new(three_tiers(4, 4));
    scene.compute(0, &[0, 1]);
    let mut boundary = Boundary::default();
    scene.directory.token_boundary(&mut boundary);
    let batch = boundary.batch.expect("spares are offered");
    let edits = boundary.edits.clone();

    scene.compute(0, &[2, 3, 4]);
    for _ in 0..3 {
        let before = scene.directory.in_flight();
        scene.directory.token_boundary(&mut boundary);
        assert_eq!((boundary.batch, boundary.edits.len(), boundary.transfers.len()), (None, 0, 0));
        scene.directory.publish(&mut boundary);
        assert_eq!((boundary.batch, boundary.edits.len()), (None, 0));
        assert_eq!(scene.directory.in_flight(), before, "nothing is evicted either");
    }
    let before = scene.state();
    for wrong in [0, batch - 1, batch + 1, u64::MAX] {
        let refused = scene.directory.acknowledge(wrong, &mut Vec::new());
        assert_eq!(refused, Err(AckError { found: wrong, waiting: Some(batch) }));
    }
    assert_eq!(scene.state(), before);

    scene.claimer.apply(&edits);
    scene.directory.acknowledge(batch, &mut Vec::new()).expect("the batch that waits");
    let again = scene.directory.acknowledge(batch, &mut Vec::new());
    assert_eq!(again, Err(AckError { found: batch, waiting: None }), "it is acknowledged once");
    assert!(!scene.publish().is_empty(), "what changed meanwhile is told now");
}

/// One batch of updates held a key twice, live and then freed. The kernel that applied them in parallel let either win, so
/// the table named a slot that had been given away, and another expert's weights were fetched. Two engines had it.
///
/// Here a batch names a key once, with the last of what became of it.
#[test]
fn a_batch_edits_a_key_once() {
    let mut scene = Scene::new(three_tiers(4, 4));
    // Into RAM, then into the near tier, before anybody was told of either.
    let read = scene.directory.read_ahead(expert(5)).expect("a free host slot");
    scene.start(read);
    scene.land_all();
    scene.directory.credit(expert(5), 1);
    let fill = scene.directory.fill().expect("a free near slot");
    scene.start(fill);
    scene.land_all();
    let edits = scene.publish();
    let of_5: Vec<&Edit> = edits.iter().filter(|edit| names(edit, 5)).collect();
    assert!(matches!(of_5[..], [Edit::Entry { from: View::Nothing, to: View::Device(_), .. }]), "{edits:?}");
    scene.apply();

    // Every batch of a long life, with acknowledgements that come late: `boundary` compares the keys.
    let mut batches = 0;
    for token in 0..400_u32 {
        let first = (token * 5 % 8) as u16;
        scene.compute(0, &[first, (first + token as u16 % 3 + 1) % 8]);
        if token % 3 == 0 {
            scene.apply();
        }
        batches += usize::from(!scene.boundary().is_empty());
    }
    assert!(batches > 100, "{batches} batches");
}

/// The same race with the claimer: it claims an expert while a batch that names the expert is on its way to it.
///
/// Here the claim wins on both sides, because an edit says what it expects to find.
#[test]
fn a_claim_that_overtakes_a_batch_voids_its_edit_on_both_sides() {
    let mut scene = Scene::new(three_tiers(4, 4));
    let read = scene.directory.read_ahead(expert(2)).expect("a free host slot");
    scene.start(read);
    scene.land_all();
    let edits = scene.publish();
    assert!(edits.iter().any(|edit| names(edit, 2)), "{edits:?}");

    let serves = scene.route(0, &[2]);
    let claimed = scene.claimer.entry(0, 2);
    assert!(matches!(claimed, View::Device(_)), "the claimer did not know yet and took a spare");
    assert_eq!(scene.drive_reads, 1, "its bytes come from RAM all the same");
    scene.apply();
    assert_eq!(scene.claimer.entry(0, 2), claimed);
    scene.land_all();
    serves.into_iter().for_each(|serve| scene.computed(serve));
    scene.compute(0, &[2]);
    scene.settle();
    scene.compute(0, &[2]);
}

/// Two tiers have the same protocol; here the driver applies at once.
#[test]
fn a_batch_edits_a_key_once_on_two_tiers() {
    let mut scene = Scene::new(two_tiers(4));
    for token in 0..200_u32 {
        scene.compute(0, &[(token * 3 % 8) as u16, (token * token % 8 / 2 * 2 + 1) as u16 % 8][..1]);
        scene.boundary();
        scene.apply();
    }
    assert!(scene.drive_reads > 20);
}

fn names(edit: &Edit, wanted: u16) -> bool {
    matches!(edit, Edit::Entry { id, .. } if *id == expert(wanted))
}
