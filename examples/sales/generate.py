"""Write a year of daily sales files, with the dirt that daily files have. The same every time.

python examples/sales/generate.py data            # data/sales_2025-01-01.csv and 364 more
"""

import csv
import random
import sys
from datetime import date, timedelta
from pathlib import Path

FIRST, DAYS = date(2025, 1, 1), 365
PRODUCTS = {"Espresso": 2.60, "Cappuccino": 3.90, "Croissant": 2.20, "Bagel": 4.50, "Orange juice": 3.40}
REGIONS = ("north", "south", "east", "west")
NOTES = ("", "", "", "gift", 'asked for "extra hot"', "two lines:\nring twice")
HEADER = ("sale_id", "Date", "product", "quantity", "unit_price", "region", "customer", "note")


def rows_of(day: date, dice: random.Random) -> list[list[str]]:
    """The rows of a day: some forty to a hundred, and more on Saturdays."""
    rows = []
    for i in range(dice.randint(45, 90) + (20 if day.weekday() == 5 else 0)):
        product = dice.choice(list(PRODUCTS))
        row = [
            f"{day:%Y%m%d}{i:04}",
            day.isoformat(),
            product,
            str(dice.randint(1, 6)),
            f"{PRODUCTS[product]:.2f}",
            dice.choice(REGIONS),
            f"C{dice.randint(1, 400):04}",
            dice.choice(NOTES),
        ]
        rows.append(dirty(row, dice) if dice.random() < 0.03 else row)
    return rows


def dirty(row: list[str], dice: random.Random) -> list[str]:
    """A row with one of the mistakes that people and programs make."""
    match dice.randrange(7):
        case 0:
            row[3] = "-1"  # a return, booked as a sale
        case 1:
            row[3] = "two"
        case 2:
            row[4] = "3,90"  # a decimal comma
        case 3:
            row[6] = ""
        case 4:
            row[1] = "2025-02-30"
        case 5:
            row[5] = f"  {row[5].upper()} "  # only untidy: cleaned, not rejected
        case _:
            row.append("a field too many")
    return row


def main(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for i in range(DAYS):
        day = FIRST + timedelta(days=i)
        with (folder / f"sales_{day}.csv").open("w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(HEADER)
            writer.writerows(rows_of(day, random.Random(f"sales {day}")))
    print(f"{DAYS} files in {folder}")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "data"))
