//! The same questions to the double and to a real kube-apiserver: what one answers, the other answers.
//!
//! The double is asked in every run. A real server is asked when `KPRS_APISERVER_KUBECONFIG` names a kubeconfig with
//! all rights on a server to break things in; its Services and so on of namespace `default` named `conf-...` are ours.
//! It must have been restarted once since it was made: a young server has no versions that are too old.

#![allow(
    clippy::unwrap_used,
    reason = "this is test code, which clippy cannot tell everywhere"
)]

mod access;
mod events;
mod lists;
mod subject;
mod watches;
mod writes;

use std::io::Write as _;
use std::sync::Once;
use subject::Subject;

/// Asks the double, and a real server if there is one.
async fn both(check: impl AsyncFn(&Subject)) {
    check(&Subject::double().await).await;
    let Some(real) = Subject::real().await else {
        static SAID: Once = Once::new();
        SAID.call_once(|| {
            // Past the capture of the test harness: a skip has to be seen.
            _ = writeln!(
                std::io::stderr(),
                "SKIPPED: the conformance checks of a real server, since KPRS_APISERVER_KUBECONFIG is not set"
            );
        });
        return;
    };
    check(&real).await;
}

macro_rules! checks {
    ($($module:ident: $($check:ident)*;)*) => {$($(
        #[tokio::test]
        async fn $check() {
            both($module::$check).await;
        }
    )*)*};
}

checks! {
    lists:
        a_list_says_its_version_and_its_items_do_not_say_their_kind
        a_list_not_older_than_a_version_has_what_was_written_then
        a_version_ahead_of_the_server_is_too_large
        a_version_that_is_no_number_is_refused
        pages_are_of_one_version
        a_list_of_any_version_has_no_pages
        a_continue_token_of_somebody_else_is_refused
        options_that_do_not_go_together_are_refused
        labels_and_fields_select
        selectors_that_mean_nothing_are_refused
        what_is_not_there_is_not_found
        only_media_types_that_are_to_be_had_are_accepted;
    watches:
        a_watch_from_a_list_brings_what_happened_since
        an_object_that_no_longer_matches_is_deleted_for_the_watch
        a_watch_without_a_version_begins_with_what_there_is
        a_streaming_list_ends_with_a_marked_bookmark
        a_version_that_is_no_longer_kept_ends_the_watch_with_410
        a_watch_ends_when_its_time_is_up_after_a_last_bookmark
        a_streaming_list_of_a_version_ahead_is_too_large
        a_watch_after_a_version_ahead_waits_for_it
        watch_options_that_do_not_go_together_are_refused
        only_the_named_node_is_watched;
    access:
        a_wrong_token_is_unauthorized
        nobody_in_particular_is_anonymous
        a_missing_right_is_named_with_verb_resource_and_group
        the_right_to_watch_is_enough_for_a_streaming_list;
    events:
        an_event_is_created_and_its_series_patched
        incomplete_events_are_refused_field_by_field
        only_the_series_of_an_event_may_change;
    writes:
        a_name_is_taken_once
        a_change_of_an_old_version_is_a_conflict
        what_is_deleted_is_said;
}
