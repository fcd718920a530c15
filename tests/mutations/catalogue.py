"""The mutations: each breaks one of the promises of docs/guarantees.md."""

from __future__ import annotations

from mutations.bad_row_mutations import BAD_ROWS
from mutations.commit_status_mutations import COMMIT_STATUS
from mutations.data_rewrite_mutations import DATA_REWRITES
from mutations.delete_file_mutations import DELETE_FILES
from mutations.keyed_stream_mutations import KEYED_STREAMS
from mutations.maintenance_expiry_mutations import EXPIRY
from mutations.maintenance_rewrites_mutations import MAINTENANCE_REWRITES
from mutations.many_tables_mutations import MANY_TABLES
from mutations.reading_mutations import READING
from mutations.routing_mutations import ROUTING
from mutations.row_level_mutations import ROW_LEVEL
from mutations.streaming_mutations import STREAMING
from mutations.transaction_mutations import TRANSACTIONS
from mutations.version_3_mutations import VERSION_3
from mutations.watching_mutations import WATCHING
from mutations.writing_mutations import WRITING

MUTATIONS = (
    *(*COMMIT_STATUS, *MANY_TABLES, *DELETE_FILES, *WRITING, *WATCHING, *ROUTING, *TRANSACTIONS, *BAD_ROWS),
    *(*DATA_REWRITES, *MAINTENANCE_REWRITES, *EXPIRY, *READING, *STREAMING, *ROW_LEVEL, *VERSION_3, *KEYED_STREAMS),
)
