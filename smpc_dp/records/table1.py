"""The table of a study's groups, `table1(age, smoker) by arm`: a name for answers that there are already."""

from __future__ import annotations

from smpc_dp.errors import ConfigCheck, ConfigError
from smpc_dp.records.asked import Statistic
from smpc_dp.records.schema import Category, Schema

TABLE1 = "table1"


def part_texts(one: Statistic, schema: Schema, where: str) -> list[str]:
    """Return the texts of the statistics that a table of groups stands for; ConfigError for a wrong column.

    Raises ConfigError for a column that there is not, or that is there twice.
    """
    if len(set(one.columns)) < len(one.columns):
        raise ConfigError.at(where, "a column is there twice", ConfigCheck.DUPLICATE)
    by = f" by {' x '.join(one.by)}" if one.by else ""
    texts = [f"count{by}"]
    for name in one.columns:
        column = schema.column(name, where)
        if not isinstance(column, Category):
            texts += [f"mean({name}){by}", f"variance({name}){by}"]
        else:
            texts.append(" x ".join((*one.by, name)) if one.by else f"histogram({name})")
        texts += [f"missing({name}){by}"] if column.missing else []
    condition = f" where {one.condition}" if one.condition else ""
    return [text + condition for text in texts]
