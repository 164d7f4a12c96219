"""Quota definitions: which entity has which limits, where they are written, and how they are changed.

    entities        users, client ids, IP addresses, topics, and their defaults (KIP-55, KIP-612); groups, capacities
    kinds           the kinds of quotas: one table, which everything that lists kinds reads
    definitions     the limits by entity, with Kafka's order of precedence, and a digest of them
    classes         capacities, and the terms on which a class of clients uses one
    groups          which names are in which group
    times           when an entry holds: from, until, hours of the week
    amounts         numbers with units: `2M`, `64Ki`
    toml_file       the quotas file: text <-> definitions, and edits that leave the rest of the text as it is
    toml_groups     the file's `[[group]]` tables
    alterations     AlterClientQuotas and DescribeClientQuotas (KIP-546), and the changes from one set to another
    records         quotas as records of a compacted topic

Nothing here limits traffic: `quotas.throttles` and `quotas.limiters` do.
"""
