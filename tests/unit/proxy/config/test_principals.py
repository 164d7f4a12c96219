"""Kafka's own examples of ssl.principal.mapping.rules, and its tests of what rules may look like."""

import pytest

from proxy.config.principals import MappingRules, NoMatchingRuleError, RuleError

# The rules and subjects of Kafka's documentation ("ssl.principal.mapping.rules").
DOCUMENTED = (
    "RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/,"
    "RULE:^CN=(.*?),OU=(.*?),O=(.*?),L=(.*?),ST=(.*?),C=(.*?)$/$1@$2/L,"
    "RULE:^.*[Cc][Nn]=([a-zA-Z0-9.]*).*$/$1/L,"
    "DEFAULT"
)
ADMIN = "CN=adminUser,OU=Admin,O=Unknown,L=Unknown,ST=Unknown,C=Unknown"


@pytest.mark.parametrize(
    ("subject", "name"),
    [
        ("CN=serviceuser,OU=ServiceUsers,O=Unknown,L=Unknown,ST=Unknown,C=Unknown", "serviceuser"),
        (ADMIN, "adminuser@admin"),
        ("cn=JohnDoe,ou=x,dc=y,dc=z", "johndoe"),
        ("O=nobody", "O=nobody"),
    ],
)
def test_documented_examples(subject: str, name: str) -> None:
    assert MappingRules(DOCUMENTED).name(subject) == name


@pytest.mark.parametrize(
    ("rules", "subject", "name"),
    [
        ("DEFAULT", ADMIN, ADMIN),
        (" DEFAULT ", "CN=a", "CN=a"),
        ("RULE:^CN=(.*?),.*$/$1/U", "CN=abc,O=x", "ABC"),
        ("RULE:^CN=(.*?), *OU=(.*?)$/$1\\/$2/", "CN=a,OU=b", "a/b"),
        ("RULE:^CN=((\\\\, *|\\w)+)(,.*|$)/$1/,DEFAULT", "CN=Tkac\\, Adam,OU=ITZ", "Tkac\\, Adam"),
        ("RULE:^cn=(.*?),ou=(.*?)$/$1@$4/", "cn=a,ou=b", "a@$4"),
        ("RULE:^CN=(.)(.)$/$12/", "CN=ab", "a2"),
        ("RULE:^CN=(?<who>.*)$/${who}!/", "CN=a", "a!"),
        ("RULE:^CN=(a)?b$/<$1>/", "CN=b", "<>"),
        ("RULE:^CN=.*$//", "CN=a", ""),
        ("RULE:a/1/,RULE:b/2/", "b", "2"),
        ("RULE:(.*)/x$1/", "abc", "xabcx"),  # Java replaces the empty match behind the whole one too
    ],
)
def test_rule_maps_a_subject(rules: str, subject: str, name: str) -> None:
    assert MappingRules(rules).name(subject) == name


def test_subject_that_no_rule_names_is_refused() -> None:
    with pytest.raises(NoMatchingRuleError, match="CN=b"):
        MappingRules("RULE:^CN=a$/a/").name("CN=b")


def test_rule_must_match_the_whole_subject() -> None:
    with pytest.raises(NoMatchingRuleError):
        MappingRules("RULE:CN=a/x/").name("CN=ab")


# Kafka's own list of rules that cannot be, and three of ours.
@pytest.mark.parametrize(
    "rules",
    [
        "default", "DEFAUL", "DEFAULT/L", "DEFAULT/U", "RULE:CN=(.*?),OU=ServiceUsers.*/$1",
        "rule:^CN=(.*?),OU=ServiceUsers.*$/$1/", "RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/L/U",
        "RULE:^CN=(.*?),OU=ServiceUsers.*$/L", "RULE:^CN=(.*?),OU=ServiceUsers.*$/U",
        "RULE:^CN=(.*?),OU=ServiceUsers.*$/LU", "", "RULE:(/x/", "RULE:a/${who}/", "DEFAULT," * 101,
    ],
)  # fmt: skip
def test_invalid_rule_is_refused(rules: str) -> None:
    with pytest.raises(RuleError):
        MappingRules(rules)
