"""php: it opens its extensions with RTLD_DEEPBIND, and mysqli frees blocks that php allocated."""

import preload

WORK = """
mysqli_report(MYSQLI_REPORT_OFF);
for ($i = 0; $i < 20; $i++) {
    $connection = mysqli_init();
    $connection->options(MYSQLI_OPT_CONNECT_TIMEOUT, 1);
    $host = $i % 2 ? "p:127.0.0.1" : "127.0.0.1";
    var_dump(@$connection->real_connect($host, "user", "word", "base", 1));
    echo mysqli_connect_errno(), "\\n";
}
try {
    new PDO("mysql:host=127.0.0.1;port=1", "user", "word");
} catch (PDOException $error) {
    echo $error->getCode(), "\\n";
}
$rows = [];
for ($i = 0; $i < 100000; $i++)
    $rows["key $i"] = str_repeat("x", $i % 100);
echo md5(json_encode($rows)), " ", mysqli_get_client_info(), "\\n";
"""


class PhpTest(preload.RealProgramTest):
    def test_extensions_do_the_same(self):
        php = self.need("php", "php-cli")
        extensions = self.run_program([php, "-m"], preload.SYSTEM).text.split()
        if "mysqli" not in extensions:
            self.fail("php has no mysqli: apt-get install php-mysql")
        system, cairn = self.run_on_both([php, "-r", WORK])
        self.assertIn("2002\n", system.text)
        self.assertEqual(cairn.text, system.text)


if __name__ == "__main__":
    preload.main()
