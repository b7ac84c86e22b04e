//! One test body for both back-ends: whatever one of them passes, the other passes too.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod bytes;
mod faults;
mod mirrors;
mod random;
mod requests;
mod scene;

/// Makes each test twice, once for each back-end.
macro_rules! both {
    ($($module:ident: $($name:ident)*;)*) => {
        mod uring {
            $($(#[test]
            fn $name() {
                crate::scene::run(nvme_reader::Choice::Uring, crate::$module::$name);
            })*)*
        }
        mod threads {
            $($(#[test]
            fn $name() {
                crate::scene::run(nvme_reader::Choice::Threads, crate::$module::$name);
            })*)*
        }
    };
}

both! {
    bytes:
        ends_of_every_kind
        parts_do_not_overlap
        parts_of_one_request_in_several_files
        the_end_of_the_file_is_an_error_only_inside_the_range
        empty_files_and_empty_parts
        memory_file_systems_are_read_through_the_cache
        what_the_page_cache_holds_is_read_from_there
        dropping_the_cache_changes_no_byte
        leases_of_registered_memory
        a_reader_moves_between_threads;
    faults:
        short_reads_of_every_length
        short_reads_that_never_end
        an_io_error_names_path_and_offset
        interruptions_are_repeated
        interruptions_that_never_end
        a_failed_try_may_spoil_what_was_there
        tries_that_undo_each_other_end
        a_file_truncated_meanwhile
        direct_reads_refused_later;
    mirrors:
        different_files_are_refused
        an_unfinished_copy_is_refused
        a_copy_whose_zeros_are_holes_is_a_copy
        a_failing_mirror_is_made_up_for
        a_truncated_mirror_is_made_up_for
        when_all_fail_the_last_is_told
        equal_mirrors_share
        a_slow_mirror_gets_less;
    requests:
        refusals_give_everything_back
        a_full_reader_refuses
        cancelled_before_any_piece_is_out
        cancelled_while_a_piece_is_out
        too_late_to_cancel
        demand_overtakes_look_ahead
        an_urged_guess_is_demand
        look_ahead_leaves_room
        dropping_waits_for_the_drive
        waiting_ends;
    random:
        every_request_completes_exactly_once;
}
