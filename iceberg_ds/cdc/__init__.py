"""Rows with keys: how the rows of a change feed change a table.

Pure decisions on Arrow batches, no catalog and no Spark. Options become a `plan.ChangeFeed` (`planning.columns`), a
task's rows become rows to write and keys to delete (`task_changes`), and the commit finds what several tasks report on
one key (`cross_task`).

What it means
-------------
After an epoch (a micro-batch or a batch), for every key in its rows the table has exactly the winning row, or no row
if the winner is a delete. All other keys are untouched. Between epochs the later one wins, unless the write sets
`sequence-scope=table` and the table's row has a higher sequence: then the table's row stays.

1. Every row is an event of its key. Without an operation column and a predicate for deletes, it is an upsert.
   `insert`, `update`, `upsert` and after images say: this row is the key's row. `delete` says: the key has no row.
   A before image says the same of the key that it shows, which matters if the change moved the row to another key.
   A row that satisfies `delete-when` is a delete, whichever operation it has, unless it is a before image.
2. The winner of a key is its event with the highest sequence. Several sequence columns are compared from the first to
   the last; a null is lower than every value; NaN is higher than every other number; -0 is 0.
   Without sequence columns all events of an epoch have the same sequence.
3. Among events of one key with the same sequence, a before image yields to every other event: both images of an
   update are one event, and a key that one row left and another row took has the row that took it.
   If all remaining events are deletes, the key is deleted. If one event remains, it wins. Anything else is a tie: two
   rows for one key, or a row and a delete, in an unknown order.
4. A tie for the win is an error that shows keys, before anything is committed; a tie below the highest sequence is
   ignored. With `keys-not-enforced=true` a row wins over deletes, and any one of several rows wins; exactly one row is
   in the table afterwards. Within a task it is the last one.
5. The outcome does not depend on which task has which events: `insert` in one task and `delete` in another are
   compared by sequence just as two rows of one task are.
6. Values are compared as the table holds them: a decimal of another scale, an integer of another width, a timestamp of
   another zone is first cast to the column's type, so that one key in the table is one key here.
   Strings are equal if their bytes are equal.

A row with a null in a key column, and a row with an unknown operation (null included), is refused: the commit says
how many such rows there are and shows some, and commits nothing. Only the key and the sequence of a delete are
read, so its other columns may be null even where the table requires values.

How it is stored
----------------
A task writes the rows that win in it, and equality deletes for the keys that may be in the table already. Equality
deletes hide only rows of older snapshots, never rows of their own snapshot, so one snapshot does both. Every key that
the task met gets an equality delete, for deletes and upserts alike; only a key for which the task saw nothing but
inserts, in a feed whose inserts are known to be new, needs none.

If two tasks wrote a row for one key, or one task wrote a row and another has its later delete, the loser's row is
hidden by a position delete in the same snapshot. For that, tasks report a 64-bit digest and the sequence of every
key. A digest only says which keys to compare: a row is hidden only after its key has compared equal to the key of the
event that it loses to. Keys of at most 16 bytes, and keys without a row, are reported as well; longer keys are read
from the rows in doubt. Where every task holds the rows of one remainder of Spark's hash of the key, as after
`distribute(df, keys=...)`, no two tasks can have the same key: the reports prove that with one number per task, and
large tasks need not send digests at all. With `sequence-scope=table` tasks always send them: the search for the old
rows finds the late keys, and rows that were written for late keys are hidden in the same way.
"""
