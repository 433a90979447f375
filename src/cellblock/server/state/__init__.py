"""What servers keep in their database: tables, migrations, and who writes and reads them."""
