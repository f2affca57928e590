"""Source coverage as an lcov tracefile, which genhtml, editors and code hosts read."""

from tb.source_coverage.points import SourceCoverage


def lcov_info(coverage: SourceCoverage, test: str) -> str:
    """The tracefile: lines with statements (executed 1 or 0 times), and branches; an FSM's arcs count as branches.

    A line with statements in several places is executed when all of them are.
    """
    answer = [f"TN:{test}"] if coverage.covered else []
    for file in coverage.files():
        lines, branches = [], []
        for line, points in sorted(coverage.by_line(file).items()):
            statements = [value for point, value in points if point.kind == "statement"]
            if statements:
                lines.append((line, all(statements)))
            arms = [value for point, value in points if point.kind in ("branch", "arc")]
            branches += [(line, number, value) for number, value in enumerate(arms)]
        answer.append(f"SF:{file}")
        answer += [f"DA:{line},{int(value)}" for line, value in lines]
        answer += [f"LF:{len(lines)}", f"LH:{sum(value for _, value in lines)}"]
        answer[-2:-2] = [f"BRDA:{line},0,{number},{int(value)}" for line, number, value in branches]
        answer += [f"BRF:{len(branches)}", f"BRH:{sum(value for *_, value in branches)}", "end_of_record"]
    return "".join(f"{line}\n" for line in answer)
