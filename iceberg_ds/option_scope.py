"""Which options count in which kind of write: appends and overwrites, batches and streams."""

from __future__ import annotations

from iceberg_ds.errors import OptionError
from iceberg_ds.identifiers import identifier_text
from iceberg_ds.options import SinkOptions


def check_scope(options: SinkOptions, *, is_overwrite: bool, is_stream: bool, is_upsert: bool = False) -> None:
    """Refuse options that do not count in this kind of write.

    Raises:
        OptionError: Names them, and where they count.
    """
    name = identifier_text(options.table)
    if not is_overwrite:
        given = {
            "overwrite-mode": options.overwrite_mode,
            "replace-where": options.replace_where,
            "isolation-level": options.isolation_level,
            "validate-from-snapshot-id": options.validate_from_snapshot_id,
            "overwriteSchema": options.overwrite_schema or None,
        }
        if idle := [option for option, value in given.items() if value is not None]:
            overwrite = 'outputMode("complete")' if is_stream else 'mode("overwrite")'
            raise OptionError(
                f"Cannot write to {name}: {', '.join(idle)} only count with {overwrite}, and this write appends. "
                "Drop them, or overwrite."
            )
    if is_overwrite and options.keys is not None:
        raise OptionError(
            f"Cannot write to {name}: option 'keys' is for appending, where rows replace those of their keys alone, "
            "and this write replaces all rows of a range. Append, or drop 'keys' and the options that belong to it."
        )
    if is_overwrite and (options.operation_column is not None or options.delete_when is not None):
        raise OptionError(
            f"Cannot write to {name}: options 'operation-column' and 'delete-when' are for change feeds, which are "
            "appended, and this write replaces rows. Append, or drop them."
        )
    _check_encoding(options, name, is_upsert=is_upsert)
    if options.sequence_scope == "table" and not is_upsert:
        raise OptionError(
            f"Cannot write to {name}: option 'sequence-scope' is table, and this write does not look at the table's "
            "rows. Write with iceberg_ds.upsert(df, table, ...), or a stream with "
            "foreachBatch(iceberg_ds.upsert_into(table, ...))."
        )
    if is_stream and options.staging_branch is not None and not options.publish_converted:
        raise OptionError(
            f"Cannot write to {name}: option 'staging-branch' is for batches, and for streams with "
            "'publish-converted'. Stream to a branch with option 'branch', and publish it with iceberg_ds.publish."
        )
    if is_stream and options.txn_app_id is not None:
        raise OptionError(
            f"Cannot write to {name}: options 'txn-app-id' and 'txn-version' are for batches. A stream numbers its "
            "epochs itself, and none lands twice. Drop them, or write batches in foreachBatch, with the number of the "
            "micro-batch as txn-version."
        )
    if not is_stream and options.stream_name is not None:
        raise OptionError(
            f"Cannot write to {name}: option 'stream-name' is for writeStream.format(\"icebergsink\"), and this is a "
            "batch. In foreachBatch, 'txn-app-id' and 'txn-version' take its place."
        )


def _check_encoding(options: SinkOptions, name: str, *, is_upsert: bool) -> None:
    encoding = options.delete_encoding
    if is_upsert and options.keys is None:
        raise OptionError(f"Cannot upsert into {name}: name the key columns, by argument 'keys' or the option.")
    if is_upsert and encoding == "equality":
        raise OptionError(
            f"Cannot upsert into {name}: option 'delete-encoding' is equality, which format(\"icebergsink\") writes. "
            "Expected position or copy-on-write."
        )
    if is_upsert and options.publish_converted:
        raise OptionError(
            f"Cannot upsert into {name}: option 'publish-converted' is for writes that make equality deletes, and an "
            "upsert makes none: its readers meet none without it. Drop the option."
        )
    if not is_upsert and encoding in ("position", "copy-on-write"):
        raise OptionError(
            f"Cannot write to {name}: option 'delete-encoding' is {encoding}, for which old rows must be looked for by "
            "a job of Spark. Write with iceberg_ds.upsert(df, table, ...), or a stream with "
            "foreachBatch(iceberg_ds.upsert_into(table, ...))."
        )
