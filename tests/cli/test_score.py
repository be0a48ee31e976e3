"""``dpconvex score``: a paid score on the command line."""

from __future__ import annotations

import json

from dpconvex.privacy import Ledger


def test_a_score_is_paid_for_and_says_what_it_promises(fitted):
    assert fitted.run("ledger", "init", "privacy.db", "--epsilon", 1).exit_code == 0
    result = fitted.run(
        "score", "model.json", "sales.csv", "--epsilon", 0.5, "--ledger", "privacy.db", "--json"
    )
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    assert found["metric"] == "pinball"
    assert found["interval"][0] <= found["value"] <= found["interval"][1]
    assert found["guarantee"]["epsilon"] == 0.5
    assert len(Ledger(fitted / "privacy.db").entries()) == 1
    result = fitted.run("score", "model.json", "sales.csv", "--metric", "residuals")
    assert result.exit_code == 0, result.output
    assert "edges" in result.stdout


def test_what_cannot_be_scored_costs_nothing(fitted):
    assert fitted.run("ledger", "init", "privacy.db", "--epsilon", 1).exit_code == 0
    for arguments in (("--metric", "accuracy"), ("--epsilon", -1), ("--metric", "nonsense")):
        result = fitted.run(
            "score", "model.json", "sales.csv", *arguments, "--ledger", "privacy.db"
        )
        assert result.exit_code == 2, result.output
        assert "Traceback" not in result.output
    assert Ledger(fitted / "privacy.db").entries() == []


def test_people_count_once_and_other_files_are_read(fitted):
    table = (fitted / "sales.csv").read_text().splitlines()
    lines = ["shop;" + table[0].replace(",", ";")]
    lines += [f"{number // 4};" + row.replace(",", ";") for number, row in enumerate(table[1:])]
    (fitted / "shops.csv").write_text("\n".join(lines) + "\n", encoding="latin-1")
    score = ("score", "model.json", "shops.csv", "--person", "shop", "--delimiter", ";")
    assert fitted.run("ledger", "init", "privacy.db", "--epsilon", 1).exit_code == 0
    result = fitted.run(*score, "--encoding", "latin-1", "--ledger", "privacy.db", "--json")
    assert result.exit_code == 0, result.output
    (entry,) = Ledger(fitted / "privacy.db").entries()
    assert entry.unit == "one person"
    result = fitted.run(*score[:-2], "--encoding", "latin-1", "--delimiter", "|")
    assert result.exit_code == 2, result.output


def test_a_level_of_several_is_scored(folder):
    assert folder.fit("--quantile", "0.1,0.9").exit_code == 0
    refused = folder.run("score", "model.json", "sales.csv")
    assert refused.exit_code == 2
    assert "Say which one to score, like --quantile 0.1" in refused.stderr
    assert folder.run("score", "model.json", "sales.csv", "--quantile", 0.9).exit_code == 0
