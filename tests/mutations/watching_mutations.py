"""Mutations of the reports on commits, and of what is counted from them."""

from __future__ import annotations

from mutations.mutating import Mutation

_COUNTERS = "unit/metrics/test_counters.py::"
_DELIVERY = "unit/metrics/test_delivery.py::"
_FILE = "unit/metrics/test_report_file.py::"
_REPORTS = "unit/commit/test_commit_reports.py::"
_FAILURES = "unit/commit/test_reports_of_failures.py::"
_UNROUTED = "unit/multi_table/test_unrouted.py::"

_FOLLOWER = "unit/metrics/test_opentelemetry.py::"

WATCHING = (
    Mutation(
        name="a follower does not keep how far it has come",
        file="metrics/follow.py",
        before="            if str(path) in last:  # all of it",
        after="            if path in last:  # all of it",
        tests=(_FOLLOWER + "test_follower_with_a_position_goes_on_where_it_was",),
    ),
    Mutation(
        name="one wrong clock hides all later commits",
        file="metrics/counters.py",
        before="    return replace(report, at_ms=now_ms) if report.at_ms > now_ms else report",
        after="    return replace(report, at_ms=now_ms) if report.at_ms < 0 else report",
        tests=(_COUNTERS + "test_clock_that_was_ahead_hides_no_later_commit",),
    ),
    Mutation(
        name="a reporter that raises ends its thread",
        file="metrics/delivery.py",
        before="except BaseException as problem:  # of any code of others, which must not fail a commit",
        after="except ValueError as problem:",
        tests=(_REPORTS + "test_reporter_that_raises_or_hangs_fails_no_commit",),
    ),
    Mutation(
        name="a commit waits for a reporter that hangs, each time",
        file="metrics/delivery.py",
        before="            self._late.append(done)",
        after="            self._late.clear()",
        tests=(_DELIVERY + "test_reporter_that_hangs_costs_one_wait_and_one_warning",),
    ),
    Mutation(
        name="a report that cannot be made fails a commit that landed",
        file="metrics/commit_meter.py",
        before="    except Exception:  # the outcome of the commit matters more than the report on it",
        after="    except KeyError:",
        tests=(_DELIVERY + "test_report_that_cannot_be_made_fails_no_commit",),
    ),
    Mutation(
        name="the commit of a process that was killed before its report is never counted",
        file="metrics/counters.py",
        before='return Counted(is_new_snapshot=True, outcomes=("replayed", "committed"))',
        after='return Counted(outcomes=("replayed",))',
        tests=(
            _COUNTERS + "test_commit_of_a_killed_process_is_counted_by_its_replay",
            _COUNTERS + "test_commits_are_the_snapshots_that_were_told_of",
        ),
        spark_tests=(
            "recipes/test_metrics.py::test_prometheus_has_what_many_killed_committers_brought_into_their_tables",
        ),
    ),
    Mutation(
        name="a replay counts its rows again",
        file="metrics/counters.py",
        before="if known is not None or (report.sequence_number or 0) <= self._forgotten",
        after="if (report.sequence_number or 0) <= self._forgotten",
        tests=(_COUNTERS + "test_replay_of_a_counted_commit_adds_no_rows",),
    ),
    Mutation(
        name="a replay does not tell of the snapshot that has its rows",
        file="commit/snapshot_update.py",
        before="self._meter.replayed(table.metadata, finding.own_id)",
        after="self._meter.replayed(table.metadata, None)",
        tests=(_REPORTS + "test_replay_tells_of_the_snapshot_that_has_its_rows",),
    ),
    Mutation(
        name="a commit whose requests were all refused is in doubt",
        file="commit/snapshot_update.py",
        before="        self._meter.is_in_doubt = not (attempt.was_refused and self._finding.is_final)\n",
        after="",
        tests=(_FAILURES + "test_commit_that_is_interrupted_is_in_doubt_if_a_request_is",),
    ),
    Mutation(
        name="tables after an interruption are forgotten",
        file="commit/together.py",
        before="            part.report(interruption)",
        after="            pass",
        tests=(_FAILURES + "test_tables_after_an_interruption_are_told_as_failed",),
    ),
    Mutation(
        name="files of a write that is interrupted are not counted",
        file="metrics/commit_meter.py",
        before="(self.files_at_stake if is_interrupted else 0)",
        after="0",
        tests=(_FAILURES + "test_commit_that_is_interrupted_before_its_request_has_failed",),
    ),
    Mutation(
        name="a version that landed is passed over once a later one has landed",
        file="snapshots/txn.py",
        before="    return next((found for found in markers if found.number == write.number), None) or",
        after="    return next((found for found in markers if False), None) or",
        tests=(_FAILURES + "test_version_that_landed_unreported_is_told_after_a_later_one",),
    ),
    Mutation(
        name="a report names the table that was planned, and not the one that another writer created",
        file="metrics/commit_meter.py",
        before="table_uuid=self._table_uuid or write.table_uuid,",
        after="table_uuid=write.table_uuid,",
        tests=(_REPORTS + "test_report_names_the_table_that_another_writer_created_first",),
    ),
    Mutation(
        name="rows in a quarantine that a killed process did not report are never counted",
        file="planning/quarantine.py",
        before="            report_replay(catalog, there, identifier_text(table.name()), table, last)\n",
        after="",
        tests=("faults/test_report_kills.py::test_rows_that_a_killed_process_did_not_report_are_counted_once",),
    ),
    Mutation(
        name="rows that name no table and that a killed process did not report are never counted",
        file="planning/quarantine.py",
        before="        if earlier.marker is not None:\n",
        after="        if earlier.marker is not None and any(source.write is not None for source in sources):\n",
        tests=(_UNROUTED + "test_report_that_a_killed_driver_could_not_make_comes_with_the_replay",),
    ),
    Mutation(
        name="a quarantine table that cannot be looked at fails a write that it has already",
        file="planning/quarantine.py",
        before="        except Exception as problem:  # of any catalog; no row is due, and a report fails no write",
        after="        except ImportError as problem:",
        tests=(_FAILURES + "test_quarantine_that_cannot_be_looked_at_fails_no_replay",),
    ),
    Mutation(
        name="a conversion is told that others have dropped",
        file="deletes/publish.py",
        before="                self._drop_those_outside(metadata)\n",
        after="",
        tests=("unit/deletes/test_publish.py::test_conversion_that_others_have_dropped_is_not_told",),
    ),
    Mutation(
        name="files of tables that have not begun are not counted",
        file="commit/epoch_part.py",
        before="self._meter.files_at_stake = with_rewritten(Added.of(write.commits), write.rewrite).file_count\n",
        after="pass\n",
        tests=(_FAILURES + "test_files_of_tables_that_had_not_begun_are_counted",),
    ),
    Mutation(
        name="a table that is interrupted after its quarantine is forgotten",
        file="commit/together.py",
        before="        with giving_up(catalog, writes):\n            fault_point(FaultPoint.QUARANTINED)",
        after="        with giving_up(catalog, []):\n            fault_point(FaultPoint.QUARANTINED)",
        tests=(_FAILURES + "test_table_that_is_interrupted_after_its_quarantine_is_told_as_failed",),
    ),
    Mutation(
        name="a label holds the id of a table",
        file="metrics/counters.py",
        before="(?:{_UUID}|route-by)",
        after="(?:route-by)",
        tests=(_COUNTERS + "test_rows_of_a_quarantine_table_are_those_of_their_stream",),
    ),
    Mutation(
        name="conversions that an earlier run could not publish are never counted",
        file="deletes/publish.py",
        before="            self._report_earlier(metadata, gained)\n",
        after="",
        tests=("faults/test_publication_kills.py::test_conversion_of_a_killed_process_is_told_by_its_replay",),
    ),
    Mutation(
        name="names without end make series without end",
        file="metrics/counters.py",
        before="if writer not in self._known and len(self._known) >= LARGEST_WRITERS:",
        after="if writer not in self._known and len(self._known) >= 10 * LARGEST_WRITERS:",
        tests=(_COUNTERS + "test_number_of_series_is_bounded_and_nothing_is_lost",),
    ),
    Mutation(
        name="a label holds the class of an error",
        file="metrics/counters.py",
        before='        names["operation"] = _operation_label(report.operation)',
        after='        names["operation"] = report.error or ""',
        tests=(_COUNTERS + "test_labels_hold_no_ids_and_no_errors",),
    ),
    Mutation(
        name="a file that another process has renamed gets the report",
        file="metrics/report_file.py",
        before="            if not _is_at(path, descriptor):",
        after="            if path is None:",
        tests=(_FILE + "test_writer_follows_a_file_that_another_process_renamed",),
    ),
    Mutation(
        name="processes write over each other's reports",
        file="metrics/report_file.py",
        before="os.O_RDWR | os.O_APPEND | os.O_CREAT",
        after="os.O_RDWR | os.O_CREAT",
        tests=(_FILE + "test_many_processes_write_and_each_report_is_read_once",),
    ),
    Mutation(
        name="a line that a killed process left spoils the next report",
        file="metrics/report_file.py",
        before="_write(descriptor, _NEWLINE + line if is_torn else line, size)",
        after="_write(descriptor, line, size)",
        tests=(_FILE + "test_line_of_a_killed_writer_costs_no_other_report",),
    ),
    Mutation(
        name="a reader's clock that was ahead hides later commits",
        file="metrics/counters.py",
        before="    return known_ms is None or time_ms >= known_ms or known_ms > now_ms",
        after="    return known_ms is None or time_ms >= known_ms",
        tests=(_COUNTERS + "test_readers_clock_that_was_ahead_hides_no_later_commit_or_event",),
    ),
    Mutation(
        name="each query whose rows are quarantined makes series of its own",
        file="metrics/counters.py",
        before='_NO_NAME = re.compile(rf"{_UUID}(?: > .+)?|',
        after='_NO_NAME = re.compile(rf"{_UUID}|',
        tests=(_COUNTERS + "test_rows_of_a_quarantine_table_are_those_of_their_stream",),
    ),
    Mutation(
        name="one event in the far future hides all others of its commit",
        file="messages.py",
        before="        if newest is not None and newest > latest_us:",
        after="        if newest is not None and newest < 0:",
        tests=(_REPORTS + "test_event_in_the_far_future_hides_no_other",),
    ),
    Mutation(
        name="rows that are not written make a table fresh",
        file="writers/reporting.py",
        before="passing = TimedBatches(arriving if bad is None else bad.passing(arriving), plan.event_time)",
        after="passing = TimedBatches(arriving, plan.event_time)",
        tests=(_REPORTS + "test_row_that_was_not_written_makes_no_table_fresh",),
    ),
    Mutation(
        name="a report follows a server to another host",
        file="catalog/rest.py",
        before="timeout=timeout, allow_redirects=False)",
        after="timeout=timeout)",
        tests=("unit/catalog/test_rest_reports.py::test_report_follows_no_server_elsewhere",),
    ),
)
