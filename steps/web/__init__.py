"""A web server for the few people who know a token; `steps.playing` and `steps.browsing` serve with it."""
