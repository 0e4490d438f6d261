"""sqlite3: a million rows; all answers, the integrity check and the table's digest are compared."""

import preload
from preload import CAIRN, HERE, SYSTEM


class SqliteTest(preload.RealProgramTest):
    def test_answers_are_the_same(self):
        sqlite = self.need("sqlite3", "sqlite3")
        script = (HERE / "sqlite_work.sql").read_bytes()
        answers = {}
        for allocator in (SYSTEM, CAIRN):
            database = self.directory / f"{allocator}.db"
            answers[allocator] = self.run_program([sqlite, "-batch", database], allocator,
                                                  input=script).text
            database.unlink()
        self.assertIn("\n1000000|500000500000|", answers[CAIRN])
        self.assertIn("\nok\n", answers[CAIRN])
        self.assertEqual(answers[CAIRN], answers[SYSTEM])


if __name__ == "__main__":
    preload.main()
