"""dev/check_t_scope.py on small texts, each with one case."""

import unittest

import dev_path  # noqa: F401
from check_t_scope import findings


def found(text):
    """(line, function, call) of the findings."""
    return list(findings(text))


class ScopeTest(unittest.TestCase):
    def test_a_call_without_a_scope(self):
        self.assertEqual(found("void f(void)\n{\n    char *s = t_strdup(x);\n}\n"),
                         [(3, "f", "t_strdup")])

    def test_a_scope_before_it(self):
        text = "void f(void) { t_scope; t_alloc(8); if (x) { t_new(int, 3); } }"
        self.assertEqual(found(text), [])

    def test_a_scope_after_it(self):
        self.assertEqual(found("void f(void) { t_alloc(8); t_scope; t_alloc(8); }"),
                         [(1, "f", "t_alloc")])

    def test_a_scope_that_has_ended(self):
        self.assertEqual(found("void f(void)\n{\n{ t_scope; t_alloc(8); }\nt_alloc(8);\n}"),
                         [(4, "f", "t_alloc")])

    def test_push_and_pop(self):
        text = "void f(void) { cairn_mark m = t_push(); t_alloc(8); t_pop(m);\n t_alloc(8); }"
        self.assertEqual(found(text), [(2, "f", "t_alloc")])

    def test_a_function_that_is_named_so(self):
        self.assertEqual(found("char *t_join(const char *a) { return t_strdup(a); }"), [])
        text = "static inline\nstruct word *t_words(void)\n{ return t_new(struct word, 1); }"
        self.assertEqual(found(text), [])

    def test_a_scope_counts_for_its_function_only(self):
        self.assertEqual(found("void f(void) { t_scope; }\nvoid g(void) { t_alloc(8); }"),
                         [(2, "g", "t_alloc")])

    def test_cplusplus(self):
        text = "namespace n {\nclass c {\n" \
               " int m() const { cairn::scope s; t_alloc(1); return 1; }\n" \
               " int k() { return *t_new(int, 1); }\n};\n}"
        self.assertEqual(found(text), [(4, "k", "t_new")])

    def test_comments_strings_and_members_are_no_calls(self):
        text = 'void f(void) { /* t_alloc(8) */ puts("t_alloc(8)"); // t_new(int, 1)\n' \
               ' p->t_alloc(8); }'
        self.assertEqual(found(text), [])
        self.assertEqual(found("#define twice(x) t_dup(x, 2)\nvoid *t_alloc(size_t size);\n"), [])

    def test_the_long_names(self):
        self.assertEqual(found("void f(void) { cairn_scope_alloc(8); }"),
                         [(1, "f", "cairn_scope_alloc")])
        self.assertEqual(found("void f(void) { CAIRN_SCOPE; cairn_scope_new(int, 3); }"), [])
        self.assertEqual(found("void *cairn_scope_two(void) { return cairn_scope_alloc(2); }"), [])

    def test_the_excuse(self):
        self.assertEqual(found("int main(void)\n{\n t_alloc(8); /* t_scope: not needed */\n}"), [])


if __name__ == "__main__":
    unittest.main()
