"""A module a verb: `gather` names the files it needs, `page` makes answer, picture and evidence."""
