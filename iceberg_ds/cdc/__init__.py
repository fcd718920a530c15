"""Rows with keys: what the rows of a change feed make of a table.

Pure decisions on Arrow batches, no catalog and no Spark. Options become a `plan.ChangeFeed` (`planning.columns`), a
task's rows become rows to write and keys to delete (`task_changes`), and what several tasks say of one key is settled
by the commit (`cross_task`).

What it means
-------------
After an epoch (a micro-batch or a batch), for every key in its rows the table has exactly the winning row, or none
if the winner is a delete. All other keys are untouched. Between epochs the later one wins, unless the table's row has a
higher sequence and the write asks that this counts (`sequence-scope=table`): then the table's row stays.

1. Every row is an event of its key. Without an operation column and a predicate for deletes, it is an upsert.
   `insert`, `update`, `upsert` and images after a change say: this row is the key's row. `delete` says: the key has no
   row. An image before a change says the same of the key that it shows, which matters if the change moved the key.
   A row that satisfies `delete-when` is a delete, whatever its operation, unless it is an image before a change.
2. The winner of a key is its event with the highest sequence. Several sequence columns count from the first to
   the last; a null is lower than every value; NaN is higher than every other number; -0 is 0.
   Without sequence columns all events of an epoch have the same sequence.
3. Among events of one key with the same sequence, an image before a change yields to everything else: both images
   of an update are one event, and a key that one row left and another one took has the row that took it.
   If all that remain say delete, the key is deleted. If one remains, it wins. Anything else is a tie: two rows for
   one key, or a row and a delete, in an order that nobody knows.
4. A tie is an error that shows keys, before anything is committed, and only if it is for the win: a tie below the
   highest sequence is not looked at. With `keys-not-enforced=true` a row wins over deletes, and among rows any one of
   them wins; exactly one is in the table afterwards. In a task it is the last one.
5. Which events meet in which task changes nothing of this: `insert` in one task and `delete` in another are held
   against each other by sequence just as two rows of one task are.
6. All values are those that the table holds: a decimal of another scale, an integer of another width, a timestamp of
   another zone is first brought into the column's type, so that what is one key in the table is one key here.
   Strings are equal if their bytes are.

A row with a null in a key column, and a row with a word that is no operation (null among them), is refused: the
commit says how many there are and shows some, and commits nothing. Of a delete only the key and the sequence are
read, so its other columns may be null even where the table requires values.

How it is stored
----------------
A task writes the rows that win in it, and the keys that may be in the table already as equality deletes. These
hide rows of older snapshots only, never those of their own, so one snapshot does both. Every key that the task
met is deleted so, deletes and upserts alike; only a key of which the task saw nothing but inserts, in a feed whose
inserts are known to be new, needs none.

If two tasks wrote a row for one key, or one wrote a row and another one has its later delete, the loser's row is
hidden by a position delete in the same snapshot. For that, tasks report a digest of 64 bits and the sequence of every
key. A digest only says which keys to compare: no row is hidden before its key has compared equal to that of what it
loses to. Keys of 16 bytes at most, and those without a row, are reported as well; longer ones are read from the rows
that are in doubt. Where every task holds the rows of one remainder of Spark's hash of the key, as after
`distribute(df, keys=...)`, no two tasks can have the same key: the reports prove that with one number per task, and
large tasks need not send digests at all. Where the table's rows count they always do: the search for the old rows tells
the late keys, and whatever was written of these is hidden in the same way.
"""
