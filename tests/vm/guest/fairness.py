"""What a tenant is entitled to, computed here once more and without the program under test."""


def entitled(weights, demands, capacity):
    """Weighted max-min of one resource: nobody gets more than it demands, and what one leaves goes
    to the others by weight. Bertsekas and Gallager, Data Networks, §6.5.2 (water filling)."""
    given = [0.0] * len(weights)
    open_ = [i for i, demand in enumerate(demands) if demand > 0]
    left = capacity
    while open_:
        level = left / sum(weights[i] for i in open_)
        filled = [i for i in open_ if demands[i] <= level * weights[i]]
        if not filled:
            for i in open_:
                given[i] = level * weights[i]
            break
        for i in filled:
            given[i] = demands[i]
            left -= demands[i]
        open_ = [i for i in open_ if i not in filled]
    return given


def entitled_shares(weights, demands, capacity):
    """The same as parts of what is used at all."""
    given = entitled(weights, demands, capacity)
    total = sum(given)
    return [part / total for part in given]
