"""How to say hello."""

HELLO = {"en": "hello", "nl": "hallo", "it": "ciao"}
