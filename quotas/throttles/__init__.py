"""Throttles: each kind of quota applied to one client, topic, user or address. They own or share limiters.

    client              all throttles of one client at one broker
    bandwidth           bytes of Produce and Fetch (KIP-13, KIP-219)
    request             broker time: `request_percentage`
    mutation            partition mutations (KIP-599)
    topic_quotas        bytes of one topic, by all clients together; `topic_names` maps ids to names (KIP-516)
    connections         connections of an IP address (KIP-612), and of a user
    figures             what every throttle counts and shows, and the memory of one
    prediction          the effect of a quota that is only observed

The engine makes them and replaces their limits when definitions change.
"""
