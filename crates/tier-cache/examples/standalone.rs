//! A made-up engine on three tiers tells what its directory has it do, token by token: `cargo run -p tier-cache --example
//! standalone`.

#![allow(clippy::print_stdout, reason = "the story is its product")]

use std::error::Error;

use tier_cache::{
    Admission, Boundary, Claimer, Directory, ExpertId, Geometry, Lane, Lfu, Plan, Ready, Residence, Slot,
    Source, Staging, Target, Transfer,
};

/// Eight experts in one layer; a near tier for five, one of which is kept empty, and RAM for two.
fn geometry() -> Geometry {
    Geometry {
        experts: 8,
        near: vec![5],
        class: vec![0],
        host: vec![2],
        spares: 1,
        yielding: false,
        offers: 2,
        host_spares: 0,
        scratch: 4,
        landings: 4,
        direct: false,
        window: 1,
        half_life: 0,
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut claimer = Claimer::new(&geometry(), Admission::All);
    let mut directory = Directory::new(geometry(), Lfu)?;
    let (mut plan, mut boundary) = (Plan::default(), Boundary::default());
    let mut reads = 0;

    directory.publish(&mut boundary);
    apply(&mut directory, &mut claimer, &boundary)?;
    for experts in [[0, 1], [0, 2], [3, 0], [0, 4], [4, 5], [5, 0], [1, 0]] {
        println!("token {} routes to {experts:?}", directory.token());
        let mut routed = Vec::new();
        claimer.decide(0, &experts, &mut routed);
        plan.clear();
        directory.route(0, &routed, &mut plan)?;
        for transfer in plan.transfers.drain(..) {
            println!("  {}", sentence(&transfer));
            reads += usize::from(transfer.from == Source::Disk);
            // A real engine starts these, and completes them as they end, in any order.
            directory.complete(transfer.ticket)?;
        }
        for (serve, routed) in plan.serves.drain(..).zip(&routed) {
            if routed.lane == Lane::Hit {
                println!("  {} is there", serve.id);
            }
            if let Target::Scratch(blob) = serve.place {
                claimer.release(blob);
            }
            if let Ready::Pinned(pin) = serve.ready {
                directory.unpin(pin);
            }
        }
        directory.token_boundary(&mut boundary);
        apply(&mut directory, &mut claimer, &boundary)?;
        directory.check()?;
    }
    for expert in 0..8 {
        let id = ExpertId { layer: 0, expert };
        let home = match directory.residence(id) {
            Residence::Device(slot) => format!("near slot {}", slot.index),
            Residence::Host(slot) => format!("host slot {}", slot.0),
            Residence::Disk => "the drive".to_owned(),
            Residence::InTransit => "between two of them".to_owned(),
        };
        println!("{id}: {home}");
    }
    println!("{reads} reads of the drive for 14 experts");
    assert!(reads < 14, "something was kept");
    Ok(())
}

/// The claimer is told, and what had waited for that begins.
fn apply(
    directory: &mut Directory,
    claimer: &mut Claimer,
    boundary: &Boundary,
) -> Result<(), Box<dyn Error>> {
    let mut transfers = boundary.transfers.clone();
    claimer.apply(&boundary.edits);
    if let Some(batch) = boundary.batch {
        directory.acknowledge(batch, &mut transfers)?;
    }
    for transfer in transfers {
        println!("  {}", sentence(&transfer));
        directory.complete(transfer.ticket)?;
    }
    Ok(())
}

fn sentence(transfer: &Transfer) -> String {
    let slot = |slot: Slot| match slot {
        Slot::Device(slot) => format!("near slot {}", slot.index),
        Slot::Host(slot) => format!("host slot {}", slot.0),
    };
    let from = match transfer.from {
        Source::Disk => "the drive".to_owned(),
        Source::Slot(from) => slot(from),
    };
    let via = match transfer.via {
        Some(Staging::Host(host)) => format!(" through host slot {}", host.0),
        Some(Staging::Landing(blob)) => format!(" through landing {blob}"),
        None => String::new(),
    };
    let to = match transfer.to {
        Target::Slot(to) => slot(to),
        Target::Scratch(blob) => format!("scratch {blob}"),
    };
    format!("{} moves from {from}{via} to {to}", transfer.id)
}
