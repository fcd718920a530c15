"""The mutations: each breaks one of the promises of docs/guarantees.md."""

from __future__ import annotations

from mutations.landing_mutations import LANDING
from mutations.resolving_mutations import RESOLVING
from mutations.routing_mutations import ROUTING
from mutations.transaction_mutations import TRANSACTIONS
from mutations.watching_mutations import WATCHING
from mutations.writing_mutations import WRITING

MUTATIONS = (*LANDING, *RESOLVING, *WRITING, *WATCHING, *ROUTING, *TRANSACTIONS)
