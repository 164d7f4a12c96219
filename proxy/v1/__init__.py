"""The documents of /v1 (docs/api.md) as their readers know them: `sluice console` and `sluice top`. Pure.

    bounds      how much of a member is read
    fields      JSON of members -> typed values, or a DocumentError
    documents   the documents of /v1 as values
    missing     the workers that a document lacks
    detail      /v1/client as a value
    merging     rows of several members -> rows of clients
    members     /v1/client of several members -> one document
    cause       why a client waits, in a few words
    verdict     /v1/client as lines for people

A member may be broken or hostile: what is read is checked, and bounded.
"""

__all__: list[str] = []
