"""Write batch and streaming Spark DataFrames into Apache Iceberg tables, exactly once, and read tables, without a jar.

import iceberg_ds
iceberg_ds.register(spark)
df.write.format("icebergsink").mode("append").save("db.events")

The names in `__all__`, the options of a write and the command `iceberg-ds` are public; docs/api.md describes them. The
modules of this package are private and may change in any version.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from iceberg_ds._version import __version__
from iceberg_ds.datasource import IcebergSink
from iceberg_ds.errors import (
    CatalogError,
    CommitConflictError,
    CommitMessageError,
    CommitStateUnknownError,
    DataFileError,
    IcebergSinkError,
    OptionError,
    OverloadedTableError,
    RefusedRowsError,
    RowCountError,
    SchemaMismatchError,
    StreamHistoryError,
    TableNotFoundError,
    UnsupportedTableError,
)
from iceberg_ds.io.configuration import read_configuration
from iceberg_ds.reading.source import IcebergSource
from iceberg_ds.session import register

if TYPE_CHECKING:
    from iceberg_ds.commit.fast_forward import fast_forward, publish
    from iceberg_ds.deletes.convert import ConvertResult, convert_deletes
    from iceberg_ds.deletes.upsert import UpsertResult, upsert, upsert_into
    from iceberg_ds.inspect.check import check
    from iceberg_ds.inspect.checklist import Check, CheckResult
    from iceberg_ds.inspect.forecast import Forecast
    from iceberg_ds.inspect.health import TableHealth, WriterHealth, table_health
    from iceberg_ds.inspect.orphans import Orphan
    from iceberg_ds.inspect.progress import QueryProgress, progress
    from iceberg_ds.inspect.verify import VerifyResult, verify
    from iceberg_ds.maintenance.expire_snapshots import ExpireResult, expire_snapshots
    from iceberg_ds.maintenance.maintain import MaintenanceResult, StepTaken, maintain, maintaining
    from iceberg_ds.maintenance.policy import MaintenancePolicy
    from iceberg_ds.maintenance.remove_orphan_files import OrphanFilesResult, remove_orphan_files
    from iceberg_ds.maintenance.resting import KeptSnapshot
    from iceberg_ds.maintenance.rewrite_data_files import RewriteResult, rewrite_data_files
    from iceberg_ds.maintenance.rewrite_manifests import RewriteManifestsResult, rewrite_manifests
    from iceberg_ds.maintenance.rewrite_position_deletes import (
        RewritePositionDeleteFilesResult,
        rewrite_position_delete_files,
    )
    from iceberg_ds.metrics.follow import ReportFollower, follow_reports
    from iceberg_ds.metrics.metrics import Metrics, MetricsSnapshot, TableMetrics
    from iceberg_ds.metrics.opentelemetry import OpenTelemetryReporter
    from iceberg_ds.metrics.prometheus import (
        MetricsCollector,
        MetricsServer,
        metrics_collector,
        push_metrics,
        serve_metrics,
    )
    from iceberg_ds.metrics.report import CommitReport, TaskFigures
    from iceberg_ds.multi_table.cut import Cut, last_complete
    from iceberg_ds.multi_table.requeue import RequeueResult, requeue
    from iceberg_ds.multi_table.transaction import TableResult, Transaction, TransactionResult, transaction
    from iceberg_ds.reading.read import read
    from iceberg_ds.reading.read_changes import read_changes
    from iceberg_ds.row_level.clauses import Delete, Insert, Update
    from iceberg_ds.row_level.delete_from import delete_from
    from iceberg_ds.row_level.merge import merge
    from iceberg_ds.row_level.operation import RowLevelResult
    from iceberg_ds.row_level.update import update
    from iceberg_ds.spark.distribution import distribute
    from iceberg_ds.spark.whole_transactions import whole_transactions

# Loaded when they are first used: PySpark imports this package wherever it looks for data sources.
_LATER = {
    "Check": "iceberg_ds.inspect.checklist",
    "CheckResult": "iceberg_ds.inspect.checklist",
    "CommitReport": "iceberg_ds.metrics.report",
    "ConvertResult": "iceberg_ds.deletes.convert",
    "Cut": "iceberg_ds.multi_table.cut",
    "Delete": "iceberg_ds.row_level.clauses",
    "ExpireResult": "iceberg_ds.maintenance.expire_snapshots",
    "Forecast": "iceberg_ds.inspect.forecast",
    "Insert": "iceberg_ds.row_level.clauses",
    "KeptSnapshot": "iceberg_ds.maintenance.resting",
    "MaintenancePolicy": "iceberg_ds.maintenance.policy",
    "MaintenanceResult": "iceberg_ds.maintenance.maintain",
    "Metrics": "iceberg_ds.metrics.metrics",
    "MetricsCollector": "iceberg_ds.metrics.prometheus",
    "MetricsServer": "iceberg_ds.metrics.prometheus",
    "MetricsSnapshot": "iceberg_ds.metrics.metrics",
    "OpenTelemetryReporter": "iceberg_ds.metrics.opentelemetry",
    "Orphan": "iceberg_ds.inspect.orphans",
    "OrphanFilesResult": "iceberg_ds.maintenance.remove_orphan_files",
    "QueryProgress": "iceberg_ds.inspect.progress",
    "ReportFollower": "iceberg_ds.metrics.follow",
    "RequeueResult": "iceberg_ds.multi_table.requeue",
    "RewriteResult": "iceberg_ds.maintenance.rewrite_data_files",
    "RewriteManifestsResult": "iceberg_ds.maintenance.rewrite_manifests",
    "RewritePositionDeleteFilesResult": "iceberg_ds.maintenance.rewrite_position_deletes",
    "RowLevelResult": "iceberg_ds.row_level.operation",
    "StepTaken": "iceberg_ds.maintenance.maintain",
    "TableHealth": "iceberg_ds.inspect.health",
    "TableMetrics": "iceberg_ds.metrics.metrics",
    "TableResult": "iceberg_ds.multi_table.transaction",
    "TaskFigures": "iceberg_ds.metrics.report",
    "Transaction": "iceberg_ds.multi_table.transaction",
    "TransactionResult": "iceberg_ds.multi_table.transaction",
    "Update": "iceberg_ds.row_level.clauses",
    "UpsertResult": "iceberg_ds.deletes.upsert",
    "VerifyResult": "iceberg_ds.inspect.verify",
    "WriterHealth": "iceberg_ds.inspect.health",
    "check": "iceberg_ds.inspect.check",
    "convert_deletes": "iceberg_ds.deletes.convert",
    "delete_from": "iceberg_ds.row_level.delete_from",
    "distribute": "iceberg_ds.spark.distribution",
    "expire_snapshots": "iceberg_ds.maintenance.expire_snapshots",
    "fast_forward": "iceberg_ds.commit.fast_forward",
    "follow_reports": "iceberg_ds.metrics.follow",
    "last_complete": "iceberg_ds.multi_table.cut",
    "maintain": "iceberg_ds.maintenance.maintain",
    "maintaining": "iceberg_ds.maintenance.maintain",
    "merge": "iceberg_ds.row_level.merge",
    "metrics_collector": "iceberg_ds.metrics.prometheus",
    "progress": "iceberg_ds.inspect.progress",
    "publish": "iceberg_ds.commit.fast_forward",
    "push_metrics": "iceberg_ds.metrics.prometheus",
    "read": "iceberg_ds.reading.read",
    "read_changes": "iceberg_ds.reading.read_changes",
    "remove_orphan_files": "iceberg_ds.maintenance.remove_orphan_files",
    "requeue": "iceberg_ds.multi_table.requeue",
    "rewrite_data_files": "iceberg_ds.maintenance.rewrite_data_files",
    "rewrite_manifests": "iceberg_ds.maintenance.rewrite_manifests",
    "rewrite_position_delete_files": "iceberg_ds.maintenance.rewrite_position_deletes",
    "serve_metrics": "iceberg_ds.metrics.prometheus",
    "table_health": "iceberg_ds.inspect.health",
    "transaction": "iceberg_ds.multi_table.transaction",
    "update": "iceberg_ds.row_level.update",
    "upsert": "iceberg_ds.deletes.upsert",
    "upsert_into": "iceberg_ds.deletes.upsert",
    "verify": "iceberg_ds.inspect.verify",
    "whole_transactions": "iceberg_ds.spark.whole_transactions",
}


def __getattr__(name: str) -> object:
    if name not in _LATER:
        raise AttributeError(f"module 'iceberg_ds' has no attribute {name!r}")
    read_configuration()  # before PyIceberg does, whose errors show what stands in it
    return getattr(import_module(_LATER[name]), name)


def __dir__() -> list[str]:
    """Return the public names, which are not all loaded yet, so that notebooks complete them."""
    return list(__all__)


__all__ = [
    "CatalogError",
    "Check",
    "CheckResult",
    "CommitConflictError",
    "CommitMessageError",
    "CommitReport",
    "CommitStateUnknownError",
    "ConvertResult",
    "Cut",
    "DataFileError",
    "Delete",
    "ExpireResult",
    "Forecast",
    "IcebergSink",
    "IcebergSinkError",
    "IcebergSource",
    "Insert",
    "KeptSnapshot",
    "MaintenancePolicy",
    "MaintenanceResult",
    "Metrics",
    "MetricsCollector",
    "MetricsServer",
    "MetricsSnapshot",
    "OpenTelemetryReporter",
    "OptionError",
    "Orphan",
    "OrphanFilesResult",
    "OverloadedTableError",
    "QueryProgress",
    "RefusedRowsError",
    "ReportFollower",
    "RequeueResult",
    "RewriteManifestsResult",
    "RewritePositionDeleteFilesResult",
    "RewriteResult",
    "RowCountError",
    "RowLevelResult",
    "SchemaMismatchError",
    "StepTaken",
    "StreamHistoryError",
    "TableHealth",
    "TableMetrics",
    "TableNotFoundError",
    "TableResult",
    "TaskFigures",
    "Transaction",
    "TransactionResult",
    "UnsupportedTableError",
    "Update",
    "UpsertResult",
    "VerifyResult",
    "WriterHealth",
    "__version__",
    "check",
    "convert_deletes",
    "delete_from",
    "distribute",
    "expire_snapshots",
    "fast_forward",
    "follow_reports",
    "last_complete",
    "maintain",
    "maintaining",
    "merge",
    "metrics_collector",
    "progress",
    "publish",
    "push_metrics",
    "read",
    "read_changes",
    "register",
    "remove_orphan_files",
    "requeue",
    "rewrite_data_files",
    "rewrite_manifests",
    "rewrite_position_delete_files",
    "serve_metrics",
    "table_health",
    "transaction",
    "update",
    "upsert",
    "upsert_into",
    "verify",
    "whole_transactions",
]
